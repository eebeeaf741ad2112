// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// selectFolder handles SELECT and EXAMINE. Even if it fails, it closes the folder that was open
// before (RFC 3501 §6.3.1) and reports that with [CLOSED] (RFC 7162 §3.2.11).
func (s *session) selectFolder(cmd *wire.Select) (wire.Code, error) {
	if cmd.QResync != nil && !s.qresync {
		return "", bad("QRESYNC needs ENABLE QRESYNC.")
	}
	if s.view != nil {
		s.closeView()
		s.w.Untagged(wire.OK, wire.CodeClosed, "The mailbox that was open is closed.")
	}
	if cmd.CondStore {
		s.enableCondStore()
	}
	view, err := s.Folders.Open(s.ctx(), s.mailboxID, cmd.Mailbox, cmd.ReadOnly)
	if err != nil {
		return "", err
	}
	s.view, s.readOnly = view, cmd.ReadOnly
	f := view.Folder()
	known := s.writeFolderFlags()
	s.w.Exists(uint32(view.Len()))
	s.writeRecent(view.Recent())
	if first := view.FirstUnseen(); first > 0 && !s.rev2 {
		s.w.Untagged(wire.OK, wire.CodeUnseen(first), "The first unseen message.")
	}
	if cmd.ReadOnly {
		s.w.Untagged(wire.OK, wire.CodePermanentFlags(wire.Flags{}, false), "Nothing can be changed.")
	} else {
		s.w.Untagged(wire.OK, wire.CodePermanentFlags(known, true), "Any keyword can be set.")
	}
	s.w.Untagged(wire.OK, wire.CodeUIDNext(f.UIDNext), "The next UID.")
	s.w.Untagged(wire.OK, wire.CodeUIDValidity(f.UIDValidity), "UIDs are valid.")
	s.w.Untagged(wire.OK, wire.CodeHighestModSeq(f.ModSeq), "The highest mod-sequence.")
	s.w.Untagged(wire.OK, wire.CodeMailboxID(mailboxID(f.ID)), "The mailbox's id.")
	s.writeName(&f, cmd.Mailbox)
	if cmd.QResync != nil && cmd.QResync.UIDValidity == f.UIDValidity {
		if err := s.resync(cmd.QResync); err != nil {
			s.closeView()
			return "", err
		}
	}
	if cmd.ReadOnly {
		return wire.CodeReadOnly, nil
	}
	return wire.CodeReadWrite, nil
}
