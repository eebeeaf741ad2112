// SPDX-License-Identifier: Apache-2.0

package message

// AmbiguousAddresses reports whether an address list is such that one program
// may see another address than the next: two in angle brackets, words after
// one, a bracket, quote or comment that does not end, an obsolete route, or
// more than anyone reads to its end.
func AmbiguousAddresses(list []byte) bool {
	const (
		before = iota // the angle brackets of an address
		opened
		within
		after
	)
	at, comment, quoted := before, 0, false
	for i := 0; i < len(list); i++ {
		c := list[i]
		switch {
		case (quoted || comment > 0) && c == '\\':
			i++
		case quoted:
			quoted = c != '"'
		case c == '(':
			comment++
		case comment > 0:
			if c == ')' {
				comment--
			}
		case c == ' ', c == '\t', c == '\r', c == '\n':
		case c == ',', c == ';':
			if at == opened || at == within {
				return true
			}
			at = before
		case c == '<' && at == before:
			at = opened
		case c == '>' && at == within:
			at = after
		case c == '<', c == '>', at == after, at == opened && c == '@':
			return true
		default:
			quoted = c == '"'
			if at == opened {
				at = within
			}
		}
	}
	return quoted || comment > 0 || at == opened || at == within || len(list) >= 2*MaxAddresses
}
