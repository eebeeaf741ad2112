// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

func (s *session) delete(cmd *wire.Delete) (wire.Code, error) {
	return "", s.Folders.Delete(s.ctx(), s.box, cmd.Mailbox)
}
