// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// maxProgram is how much of a client's name is kept, in bytes.
const maxProgram = 100

// identify is ID (RFC 2971). We tell our name but not our version, which
// would only help those who look for old ones.
func (s *session) identify(cmd *wire.ID) (wire.Code, error) {
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
		s.program = clean(name + " " + version)
		s.Mailboxes.Named(s.listed, s.program)
		s.logger().Debug("imap: client", "name", s.program)
	}
	s.w.ID(wire.IDParam{Key: "name", Value: "Mailstead"})
	return "", nil
}

// clean makes a client's words fit to be shown, in one line.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxProgram {
		s = strings.ToValidUTF8(s[:maxProgram], "")
	}
	return s
}
