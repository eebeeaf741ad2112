// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// copy is COPY. All messages are copied or none (RFC 3501 §6.4.7): one that a
// number means and that another session has expunged refuses the others too
// (RFC 2180 §4.4.1), while a UID that no message has is none.
func (s *session) copy(cmd *wire.Copy) (wire.Code, error) {
	uids, err := s.resolve(cmd.Messages)
	if err != nil || len(uids) == 0 {
		return "", err
	}
	transfer := s.view.CopyAll
	if cmd.Messages.UID {
		transfer = s.view.Copy
	}
	copied, err := transfer(s.ctx(), uids, cmd.Mailbox)
	if err == nil {
		s.reportCopy(&copied)
	}
	return copyUIDCode(&copied), tryCreateError(err)
}

// copyUIDCode is the code that tells the new UIDs, if any message was copied.
func copyUIDCode(c *folder.CopyResult) wire.Code {
	if len(c.SrcUIDs) == 0 {
		return ""
	}
	return wire.CopyUID(c.UIDValidity, wire.SetOf(c.SrcUIDs...), wire.SetOf(c.DstUIDs...))
}
