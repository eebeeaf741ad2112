// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// enable is ENABLE (RFC 5161): CONDSTORE is all that there is to enable. It
// names what this command has switched on, so nothing the second time.
func (s *session) enable(cmd *wire.Enable) (wire.Code, error) {
	var enabled []string
	for _, name := range cmd.Capabilities {
		if name == "CONDSTORE" && !s.condStore {
			enabled = append(enabled, name)
			s.wantModSeqs()
		}
	}
	s.w.Enabled(enabled...)
	return "", nil
}
