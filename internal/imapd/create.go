// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"strings"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// create is CREATE. A separator at the end only says that the client wants to
// put folders into the new one (RFC 3501 §6.3.3).
func (s *session) create(cmd *wire.Create) (wire.Code, error) {
	if len(cmd.SpecialUse) > 0 {
		return "", bad("This server does not offer CREATE with a special use.")
	}
	_, err := s.Folders.Create(s.ctx(), s.box, trimSeparator(cmd.Mailbox))
	return "", err
}

func trimSeparator(name string) string { return strings.TrimSuffix(name, string(separator)) }
