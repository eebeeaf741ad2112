// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// rename handles RENAME. Renaming INBOX moves its messages into a new folder and leaves INBOX empty
// (RFC 3501 §6.3.5).
func (s *session) rename(cmd *wire.Rename) (wire.Code, error) {
	to := trimSeparator(cmd.To)
	if err := s.Folders.Rename(s.ctx(), s.mailboxID, cmd.From, to); err != nil || !s.rev2 {
		return "", err
	}
	f, err := s.Folders.Status(s.ctx(), s.mailboxID, to)
	if err == nil {
		s.writeName(&f, cmd.From)
	}
	return "", nil // on an error too: another session may have renamed it once more
}
