// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// forged reports whether a field of an arriving message claims to be this
// host's own judgement: whoever reads such a field trusts it (RFC 8601 §5).
// Those of spam filters say of no host whose they are.
func (i *Inbound) forged(f message.Field) bool {
	if len(f.Name) >= len(spamFields) && strings.EqualFold(string(f.Name[:len(spamFields)]), spamFields) {
		return true
	}
	return f.Is("Authentication-Results") && strings.EqualFold(strings.TrimSuffix(authserv(f.Text()), "."), i.Host)
}

// spamFields is how the fields begin that spam filters add.
const spamFields = "X-Spam-"

// authserv returns the authserv-id that the value of an Authentication-Results
// field begins with, behind comments and within quotes if there are any.
func authserv(value string) string {
	var id strings.Builder
	comments, quoted := 0, false
	for k := 0; k < len(value); k++ {
		c := value[k]
		switch {
		case c == '\\' && (quoted || comments > 0) && k+1 < len(value):
			if k++; quoted {
				id.WriteByte(value[k])
			}
		case c == '"' && comments == 0:
			quoted = !quoted
		case quoted:
			id.WriteByte(c)
		case c == '(':
			comments++
		case c == ')' && comments > 0:
			comments--
		case comments > 0:
		case c == ';', (c == ' ' || c == '\t') && id.Len() > 0:
			return id.String()
		case c != ' ' && c != '\t':
			id.WriteByte(c)
		}
	}
	return id.String()
}
