// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/message"
)

// isForgedResult reports whether a field of a received message claims to be this host's own check
// result. Readers trust such fields (RFC 8601 §5). Spam filters' fields don't name a host, so all
// of them count as forged.
func (i *Service) isForgedResult(f message.Field) bool {
	if len(f.Name) >= len(spamFieldPrefix) && strings.EqualFold(string(f.Name[:len(spamFieldPrefix)]), spamFieldPrefix) {
		return true
	}
	return f.Is("Authentication-Results") && hasOwnAuthservID(f.Unfolded(), i.Host)
}

// spamFieldPrefix is the prefix of the fields that spam filters add.
const spamFieldPrefix = "X-Spam-"

// hasOwnAuthservID reports whether an Authentication-Results value begins with the authserv-id of
// host, however a reader might parse it. The authserv-id may come after comments or be in quotes,
// even if these are not closed (RFC 8601 §2.2). It may be in Unicode where host has A-labels
// (§2.5).
func hasOwnAuthservID(value, host string) bool {
	var id strings.Builder
	comments, quoted := 0, false
	shown := address.DisplayDomain(host)
	its := func() bool {
		name := strings.TrimSuffix(id.String(), ".")
		return strings.EqualFold(name, host) || strings.EqualFold(name, shown)
	}
	for k := 0; k < len(value); k++ {
		c := value[k]
		switch {
		case c == '\\' && (quoted || comments > 0) && k+1 < len(value):
			if k++; quoted {
				id.WriteByte(value[k])
			}
		case c == '"' && comments == 0:
			if its() {
				return true
			}
			quoted = !quoted
		case quoted:
			id.WriteByte(c)
		case c == '(':
			if its() {
				return true
			}
			comments++
		case c == ')' && comments > 0:
			comments--
		case comments > 0:
		case c == ';', c == '=', c == ')', c <= ' ' && id.Len() > 0:
			return its()
		case c > ' ':
			id.WriteByte(c)
		}
	}
	return its()
}
