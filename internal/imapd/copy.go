// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// copy handles COPY. It copies all messages or none (RFC 3501 §6.4.7). If a sequence number names a
// message that another session has expunged, it rejects the whole command (RFC 2180 §4.4.1). It
// ignores a UID that no message has.
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

// copyUIDCode returns the code with the new UIDs, if any message was copied.
func copyUIDCode(c *folder.CopyResult) wire.Code {
	if len(c.SrcUIDs) == 0 {
		return ""
	}
	return wire.CodeCopyUID(c.UIDValidity, wire.SetOf(c.SrcUIDs...), wire.SetOf(c.DstUIDs...))
}
