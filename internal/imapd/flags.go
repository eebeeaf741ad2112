// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// The folder's flags and those of the protocol are the same bits, which the
// compiler checks here: an index that is not 0 does not fit.
var _ = [1]struct{}{}[(folder.Seen^folder.Flags(wire.Seen))|(folder.Recent^folder.Flags(wire.Recent))|
	(folder.Answered^folder.Flags(wire.Answered))|(folder.Flagged^folder.Flags(wire.Flagged))|
	(folder.Deleted^folder.Flags(wire.Deleted))|(folder.Draft^folder.Flags(wire.Draft))]

func (s *session) wireFlags(f folder.Flags, keywords []string) wire.Flags {
	if s.rev2 {
		f &^= folder.Recent
	}
	return wire.Flags{System: wire.SystemFlags(f), Keywords: keywords}
}

// writeFolderFlags writes which flags the folder has.
func (s *session) writeFolderFlags() wire.Flags {
	known := wire.Flags{System: wire.AllFlags, Keywords: s.view.Keywords()}
	s.keywordCount = len(known.Keywords)
	s.w.FolderFlags(known)
	return known
}

// writeNewKeywords writes the flags again when a keyword has been added: before a
// FETCH tells of it, since clients record them from FLAGS (RFC 3501 §7.2.6).
func (s *session) writeNewKeywords() {
	if s.view.KeywordCount() == s.keywordCount {
		return
	}
	known := s.writeFolderFlags()
	if !s.readOnly {
		s.w.Untagged(wire.OK, wire.PermanentFlags(known, true), "There are new keywords.")
	}
}
