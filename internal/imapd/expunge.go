// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// expunge handles EXPUNGE, and UID EXPUNGE (RFC 4315) with its UIDs. writeChanges writes the
// untagged EXPUNGEs, with those of other sessions.
func (s *session) expunge(cmd *wire.Expunge) (wire.Code, error) {
	var only []uint32
	if cmd.Messages.UID {
		var err error
		if only, err = s.resolve(cmd.Messages); err != nil || len(only) == 0 {
			return "", err
		}
	}
	gone, err := s.view.Expunge(s.ctx(), only)
	if err != nil || len(gone) == 0 {
		return "", err
	}
	return s.expungeCode()
}
