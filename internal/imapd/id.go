// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// maxClientName is how much of a client's name is kept, in bytes.
const maxClientName = 100

// identifyClient is ID (RFC 2971). We tell our name but not our version, which
// would only help those who look for old ones.
func (s *session) identifyClient(cmd *wire.ID) (wire.Code, error) {
	var name, version string
	for _, p := range cmd.Params {
		switch strings.ToLower(p.Key) {
		case "name":
			name = p.Value
		case "version":
			version = p.Value
		}
	}
	if name != "" {
		s.clientName = sanitizeClientName(name + " " + version)
		s.Mailboxes.SetSessionProgram(s.sessionID, s.clientName)
		s.logger().Debug("imap: client", "name", s.clientName)
	}
	s.w.ID(wire.IDParam{Key: "name", Value: "Mailstead"})
	return "", nil
}

// sanitizeClientName makes a client's words fit to be shown, in one line.
func sanitizeClientName(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxClientName {
		s = strings.ToValidUTF8(s[:maxClientName], "")
	}
	return s
}
