// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"strings"

	"github.com/mailstead/mailstead/internal/folder"
)

// pattern is a LIST pattern: * matches anything, % anything within one level
// (RFC 3501 §6.3.8).
type pattern string

// newPattern puts a reference and a pattern together. INBOX is INBOX in any
// case, also as the first level of a name.
func newPattern(reference, p string) pattern {
	p = reference + p
	first, rest, more := strings.Cut(p, string(separator))
	if strings.EqualFold(first, folder.Inbox) {
		p = folder.Inbox
		if more {
			p += string(separator) + rest
		}
	}
	return pattern(p)
}

// matches takes time proportional to the product of the lengths at most,
// whatever a client has thought up.
func (p pattern) matches(name string) bool {
	if len(p)-strings.Count(string(p), "*")-strings.Count(string(p), "%") > len(name) {
		return false
	}
	at := make([]bool, len(name)+1) // the pattern so far matches name[:i]
	at[0] = true
	last := byte(0)
	for i := range len(p) {
		c := p[i]
		wild := c == '*' || c == '%'
		switch {
		case wild && (last == '*' || last == c):
			continue
		case wild:
			reached := false
			for j := range at {
				if c == '%' && j > 0 && name[j-1] == separator {
					reached = false
				}
				reached = reached || at[j]
				at[j] = reached
			}
		default:
			for j := len(name); j > 0; j-- {
				at[j] = at[j-1] && name[j-1] == c
			}
			at[0] = false
		}
		last = c
	}
	return at[len(name)]
}
