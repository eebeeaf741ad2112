// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"slices"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// mayExpunge reports whether messages may lose their sequence numbers at the end of a command: not
// after FETCH, STORE and SEARCH, whose UID forms are separate commands (RFC 3501 §7.4.1).
func mayExpunge(cmd wire.Command) bool {
	switch cmd := cmd.(type) {
	case *wire.Fetch:
		return cmd.Messages.UID
	case *wire.Store:
		return cmd.Messages.UID
	case *wire.Search:
		return cmd.UID && !usesSequenceNumbers(&cmd.Key)
	case *wire.Sort:
		return cmd.UID && !usesSequenceNumbers(&cmd.Key)
	case *wire.Thread:
		return cmd.UID && !usesSequenceNumbers(&cmd.Key)
	}
	return true
}

// usesSequenceNumbers reports whether a search program contains sequence numbers, which must still
// have the same meaning when the client reads the response (RFC 7162 §3.2.10.2).
func usesSequenceNumbers(k *wire.SearchKey) bool {
	if k.Op == wire.SearchNumbers {
		return !k.Numbers.UID && !k.Numbers.Saved
	}
	for i := range k.Keys {
		if usesSequenceNumbers(&k.Keys[i]) {
			return true
		}
	}
	return false
}

// isSelect reports whether a command has just reported the complete state of the folder: a second
// EXISTS after it would not match its UIDNEXT.
func isSelect(cmd wire.Command) bool {
	_, ok := cmd.(*wire.Select)
	return ok
}

// writeChanges reports the changes in the selected folder, by other sessions or by the session's
// own command.
func (s *session) writeChanges(expunge bool) error {
	if s.view == nil {
		return nil
	}
	c, err := s.view.Sync(s.ctx(), expunge)
	if err != nil {
		return err
	}
	s.expungePending = c.ExpungePending
	s.writeNewKeywords()
	if s.qresync {
		s.w.Vanished(false, wire.SetOf(c.Vanished...))
	} else {
		for _, seq := range c.Expunged {
			s.w.Expunge(seq)
		}
	}
	if c.HasNewMessages {
		s.w.Exists(c.Exists)
		s.writeRecent(c.Recent)
	}
	return s.eachChange(c.Flags, func(c *folder.FlagChange) { s.writeFlags(c) })
}

// eachChange calls write for all changes, each with its keywords. Changes are not reported twice:
// if it fails, the connection ends.
func (s *session) eachChange(changes []folder.FlagChange, write func(c *folder.FlagChange)) error {
	for some := range slices.Chunk(changes, folder.MaxFillKeywords) {
		if err := s.view.FillKeywords(s.ctx(), some); err != nil {
			s.logger().Error("imap: reading keywords", "folder", s.view.Folder().ID, "err", err)
			return wrapConnError(err)
		}
		for i := range some {
			write(&some[i])
			some[i].Keywords = nil
		}
	}
	return nil
}

// searchCode returns the code of a search that may have left out messages because they are gone,
// although the client still numbers them (RFC 5530 §3, EXPUNGEISSUED).
func (s *session) searchCode(cmd wire.Command) wire.Code {
	switch cmd.(type) {
	case *wire.Search, *wire.Sort, *wire.Thread:
		if s.expungePending {
			return wire.CodeExpungeIssued
		}
	}
	return ""
}

// writeFlags writes the untagged FETCH with a message's new flags.
func (s *session) writeFlags(c *folder.FlagChange) {
	row := s.w.Fetch(c.Seq)
	row.UID(c.UID)
	if s.condStore {
		row.ModSeq(c.ModSeq)
	}
	row.Flags(s.wireFlags(c.Flags, c.Keywords))
	row.End()
}
