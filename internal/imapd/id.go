// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// maxClientName limits a client's name, in bytes.
const maxClientName = 100

// identifyClient handles ID (RFC 2971). The server sends its name but not its version, which would
// only help attackers find old ones.
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

// sanitizeClientName makes a client's name printable, in one line.
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
