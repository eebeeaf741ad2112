// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// identify is ID (RFC 2971). We tell our name but not our version, which
// would only help those who look for old ones.
func (s *session) identify(cmd *wire.ID) (wire.Code, error) {
	for _, p := range cmd.Params {
		if p.Key == "name" {
			s.logger().Debug("imap: client", "name", p.Value)
		}
	}
	s.w.ID(wire.IDParam{Key: "name", Value: "Mailstead"})
	return "", nil
}
