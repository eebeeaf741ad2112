// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// copy is COPY. All messages are copied or none (RFC 3501 §6.4.7).
func (s *session) copy(cmd *wire.Copy) (wire.Code, error) {
	uids, err := s.resolve(cmd.Messages)
	if err != nil || len(uids) == 0 {
		return "", err
	}
	copied, err := s.view.Copy(s.ctx(), uids, cmd.Mailbox)
	if err == nil {
		s.sorted(&copied)
	}
	return copyUID(&copied), orTryCreate(err)
}

// copyUID is the code that tells the new UIDs, if any message was copied.
func copyUID(c *folder.Copied) wire.Code {
	if len(c.Src) == 0 {
		return ""
	}
	return wire.CopyUID(c.UIDValidity, wire.SetOf(c.Src...), wire.SetOf(c.Dst...))
}
