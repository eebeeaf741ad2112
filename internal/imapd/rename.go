// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// rename is RENAME. That of INBOX moves its messages into a new folder and
// leaves INBOX empty (RFC 3501 §6.3.5).
func (s *session) rename(cmd *wire.Rename) (wire.Code, error) {
	return "", s.Folders.Rename(s.ctx(), s.box, cmd.From, trimSeparator(cmd.To))
}
