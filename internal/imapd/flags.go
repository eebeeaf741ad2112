// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// Package folder and the protocol use the same bits for flags. The compiler checks that here: an
// index other than 0 is out of range.
var _ = [1]struct{}{}[(folder.Seen^folder.Flags(wire.Seen))|(folder.Recent^folder.Flags(wire.Recent))|
	(folder.Answered^folder.Flags(wire.Answered))|(folder.Flagged^folder.Flags(wire.Flagged))|
	(folder.Deleted^folder.Flags(wire.Deleted))|(folder.Draft^folder.Flags(wire.Draft))]

func (s *session) wireFlags(f folder.Flags, keywords []string) wire.Flags {
	if s.rev2 {
		f &^= folder.Recent
	}
	return wire.Flags{System: wire.SystemFlags(f), Keywords: keywords}
}

// writeFolderFlags writes the folder's flags.
func (s *session) writeFolderFlags() wire.Flags {
	known := wire.Flags{System: wire.AllFlags, Keywords: s.view.Keywords()}
	s.keywordCount = len(known.Keywords)
	s.w.FolderFlags(known)
	return known
}

// writeNewKeywords writes the folder's flags again when a keyword was added. It must precede a
// FETCH with the keyword, since clients record keywords from FLAGS (RFC 3501 §7.2.6).
func (s *session) writeNewKeywords() {
	if s.view.KeywordCount() == s.keywordCount {
		return
	}
	known := s.writeFolderFlags()
	if !s.readOnly {
		s.w.Untagged(wire.OK, wire.CodePermanentFlags(known, true), "There are new keywords.")
	}
}
