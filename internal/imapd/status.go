// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// status handles STATUS, with the items SIZE (RFC 8438), APPENDLIMIT (RFC 7889), MAILBOXID (RFC
// 8474), DELETED and DELETED-STORAGE (RFC 9208 §4.1.4).
func (s *session) status(cmd *wire.StatusCommand) (wire.Code, error) {
	s.enableForStatus(cmd.Items)
	f, err := s.Folders.Status(s.ctx(), s.mailboxID, cmd.Mailbox)
	if err != nil {
		return "", err
	}
	return "", s.writeStatus(cmd.Mailbox, &f, cmd.Items)
}

func (s *session) enableForStatus(items wire.StatusItems) {
	if items&wire.StatusHighestModSeq != 0 {
		s.enableCondStore()
	}
}

// writeStatus writes the status of a folder, under the name that the client used.
func (s *session) writeStatus(name string, f *folder.Folder, items wire.StatusItems) error {
	row := wire.StatusData{
		Mailbox: name, Items: items, Messages: f.Messages, UIDNext: f.UIDNext,
		UIDValidity: f.UIDValidity, Unseen: f.Unseen, HighestModSeq: f.ModSeq, AppendLimit: MaxMessageBytes,
		Size: uint64(f.Bytes), MailboxID: mailboxID(f.ID),
	}
	if items&wire.StatusRecent != 0 {
		var err error
		if row.Recent, err = s.Folders.CountRecent(s.ctx(), f); err != nil {
			return err
		}
	}
	if items&(wire.StatusDeleted|wire.StatusDeletedStorage) != 0 {
		messages, bytes, err := s.Folders.DeletedUsage(s.ctx(), f.ID)
		if err != nil {
			return err
		}
		row.Deleted, row.DeletedStorage = messages, uint64(bytes)
	}
	s.w.Status(&row)
	return nil
}
