// SPDX-License-Identifier: Apache-2.0

package message

// AmbiguousAddresses reports whether an address list is such that one program
// may see another address than the next: two in angle brackets, words after
// one, two "@" in one address, a bracket, quote or comment that does not end, an
// obsolete route, or more than anyone reads to its end.
func AmbiguousAddresses(list []byte) bool {
	const (
		before = iota // the angle brackets of an address
		opened
		within
		after
	)
	at, comment, quoted, signs := before, 0, false, 0
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
			if at == opened || at == within || signs > 1 {
				return true
			}
			at, signs = before, 0
		case c == '<' && at == before: // what stood before is a name
			at, signs = opened, 0
		case c == '>' && at == within:
			at = after
		case c == '<', c == '>', at == after, at == opened && c == '@':
			return true
		default:
			quoted = c == '"'
			if at == opened {
				at = within
			}
			if c == '@' {
				signs++
			}
		}
	}
	return quoted || comment > 0 || at == opened || at == within || signs > 1 || len(list) >= 2*MaxAddresses
}
