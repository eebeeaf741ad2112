// SPDX-License-Identifier: Apache-2.0

package dns

import "strings"

// joinTXT joins the strings of a TXT record (RFC 7208 §3.3, RFC 6376 §3.6.2.2) and decodes their
// escapes. The library returns strings in zone-file notation (RFC 1035 §5.1: \DDD in decimal, \X
// for X).
func joinTXT(parts []string) string {
	if len(parts) == 1 && strings.IndexByte(parts[0], '\\') < 0 {
		return parts[0]
	}
	var b strings.Builder
	for _, s := range parts {
		for i := 0; i < len(s); i++ {
			if s[i] != '\\' || i+1 == len(s) {
				b.WriteByte(s[i])
				continue
			}
			if n, ok := parseDecimal(s[i+1:]); ok {
				b.WriteByte(n)
				i += 3
				continue
			}
			i++
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// parseDecimal parses three decimal digits, at most 255.
func parseDecimal(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s[:3]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return byte(n), n <= 255
}
