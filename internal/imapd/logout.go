// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

func (s *session) logout() (wire.Code, error) {
	s.closeView()
	s.w.Untagged(wire.Bye, "", "Goodbye.")
	s.closing = true
	return "", nil
}
