// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

func (s *session) subscribe(cmd *wire.Subscribe) (wire.Code, error) {
	return "", s.Folders.Subscribe(s.ctx(), s.mailboxID, cmd.Mailbox)
}

func (s *session) unsubscribe(cmd *wire.Unsubscribe) (wire.Code, error) {
	return "", s.Folders.Unsubscribe(s.ctx(), s.mailboxID, cmd.Mailbox)
}
