// SPDX-License-Identifier: Apache-2.0

package address

import "strings"

const (
	whyNameLong   = "The name before the address is longer than 512 octets."
	whyNameChars  = "The name before the address holds line breaks, control characters or broken UTF-8."
	whyNameQuotes = "Put the name before the address in double quotes when it holds a comma, a quotation mark or another special character."
	whyBrackets   = "An address with a name has the form Name <user@domain>."
)

// NameAddr is an address with a display name. Name is plain text, without quotation marks or MIME
// encoding, and may be empty.
type NameAddr struct {
	Name    string
	Address Address
}

// ParseNameAddr parses user@domain, <user@domain>, Name <user@domain> or "Name, quoted"
// <user@domain>: exactly one address. Names are UTF-8. It rejects line breaks and control
// characters anywhere. The code of its errors is invalid_address.
func ParseNameAddr(s string) (NameAddr, error) {
	n, why := parseNameAddr(s)
	if why != "" {
		return NameAddr{}, invalid("invalid_address", why)
	}
	return n, nil
}

func parseNameAddr(s string) (NameAddr, string) {
	if len(s) > maxInput {
		return NameAddr{}, "The address is too long."
	}
	s = strings.Trim(s, " ")
	if !strings.HasSuffix(s, ">") {
		a, why := parse(s)
		return NameAddr{Address: a}, why
	}
	open, why := findOpenBracket(s)
	if why != "" {
		return NameAddr{}, why
	}
	name, why := parseDisplayName(strings.Trim(s[:open], " "))
	if why != "" {
		return NameAddr{}, why
	}
	a, why := parse(s[open+1 : len(s)-1])
	return NameAddr{Name: name, Address: a}, why
}

// findOpenBracket finds the < before the address: the first one outside quotation marks, since a
// quoted name may contain one too.
func findOpenBracket(s string) (int, string) {
	inQuotes := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			inQuotes = !inQuotes
		case s[i] == '\\' && inQuotes:
			i++
		case s[i] == '<' && !inQuotes:
			return i, ""
		}
	}
	return 0, whyBrackets
}

func parseDisplayName(s string) (string, string) {
	if strings.HasPrefix(s, `"`) {
		var ok bool
		if s, ok = unquoteName(s); !ok {
			return "", whyNameQuotes
		}
		s = strings.Trim(s, " ")
	} else if strings.ContainsAny(s, `",;<>`) {
		// Unquoted, these would make it a list or a group (RFC 5322 §3.4), and
		// an address in it would get no mail.
		return "", whyNameQuotes
	}
	if len(s) > MaxDisplayName {
		return "", whyNameLong
	}
	if !isSafeText(s) {
		return "", whyNameChars
	}
	return s, ""
}

// unquoteName returns the text of s, which must be one quoted string.
func unquoteName(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}
