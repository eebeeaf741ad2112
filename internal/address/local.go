// SPDX-License-Identifier: Apache-2.0

package address

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// reservedPrefix is the prefix of the return paths of API mail.
const reservedPrefix = "b-"

const (
	whyNoAt       = "An address has the form name@domain."
	whyLocalEmpty = "The part before the @ is missing."
	whyLocalDots  = "The part before the @ has nothing but dots."
	whyLocalChars = "The part before the @ holds a character that is not allowed there."
	whyQuotes     = "The quotation marks before the @ are not closed properly."
)

// cutLocal cuts the local part and the @ off s, and returns the local part in its canonical form.
func cutLocal(s string) (local, rest, why string) {
	if s != "" && s[0] == '"' {
		return cutQuoted(s)
	}
	at := strings.IndexByte(s, '@')
	if at < 0 {
		return "", "", whyNoAt
	}
	local, rest = s[:at], s[at+1:]
	switch {
	case local == "":
		return "", "", whyLocalEmpty
	case isDotAtom(local):
		return local, rest, ""
	}
	switch atoms := strings.ReplaceAll(local, ".", ""); {
	case atoms == "":
		return "", "", whyLocalDots
	case isDotAtom(atoms):
		return quoteText(local), rest, ""
	}
	return "", "", whyLocalChars
}

// cutQuoted parses a Quoted-string (RFC 5321 §4.1.2). Its canonical form has no quotation marks
// where none are needed.
func cutQuoted(s string) (local, rest, why string) {
	var text strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if i+1 == len(s) || s[i+1] != '@' {
				return "", "", whyQuotes
			}
			if !isSafeText(text.String()) {
				return "", "", whyLocalChars
			}
			return quoteIfNeeded(text.String()), s[i+2:], ""
		case c == '\\':
			i++
			if i == len(s) || s[i] >= 0x7f {
				return "", "", whyQuotes
			}
			text.WriteByte(s[i])
		default:
			text.WriteByte(c)
		}
	}
	return "", "", whyQuotes
}

// quoteIfNeeded returns an unquoted local part in wire form.
func quoteIfNeeded(text string) string {
	if isDotAtom(text) {
		return text
	}
	return quoteText(text)
}

// quoteText puts text in quotation marks (RFC 5321 §4.1.2, RFC 5322 §3.2.4).
func quoteText(text string) string {
	var b strings.Builder
	b.Grow(len(text) + 2)
	b.WriteByte('"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	b.WriteByte('"')
	return b.String()
}

// unquote returns a local part in canonical form without its quoting.
func unquote(local string) string {
	if len(local) < 2 || local[0] != '"' {
		return local
	}
	var b strings.Builder
	for i := 1; i < len(local)-1; i++ {
		if local[i] == '\\' {
			i++
		}
		b.WriteByte(local[i])
	}
	return b.String()
}

// isDotAtom reports whether s is a Dot-string of RFC 5321 §4.1.2 as extended
// by RFC 6531 §3.3.
func isDotAtom(s string) bool {
	ascii, dot := true, true
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '.':
			if dot {
				return false
			}
		case c >= utf8.RuneSelf:
			ascii = false
		case !isAtext(c):
			return false
		}
		dot = c == '.'
	}
	if dot {
		return false
	}
	if ascii {
		return true
	}
	for _, r := range s {
		if unicode.IsSpace(r) {
			return false
		}
	}
	return isSafeText(s)
}

// isAtext reports whether c is in atext (RFC 5322 §3.2.3).
func isAtext(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}

// isSafeText reports whether s is UTF-8 without characters that could end a line, control a
// terminal or reverse the reading direction.
func isSafeText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r < 0x20, 0x7f <= r && r < 0xa0: // C0, DEL, C1
			return false
		case r == 0x2028, r == 0x2029: // line and paragraph separators
			return false
		case 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069: // bidi overrides
			return false
		}
	}
	return true
}

// CheckLocalPart checks the local part of a NEW mailbox or alias, by stricter rules than those of
// Parse for remote addresses: letters and digits of any script, dots, hyphens and underscores; at
// most 64 octets; no plus (it begins a tag), and no prefix b-, which is reserved for return paths.
// The codes are invalid_local_part and reserved_local_part.
func CheckLocalPart(s string) error {
	const code = "invalid_local_part"
	switch {
	case s == "":
		return invalid(code, "The local part is missing.")
	case len(s) > MaxLocalPart:
		return invalid(code, "The local part is longer than 64 octets.")
	case !utf8.ValidString(s):
		return invalid(code, "The local part is not valid UTF-8.")
	case s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, ".."):
		return invalid(code, "The local part must not begin or end with a dot or hold two dots in a row.")
	}
	for i, r := range s {
		if !isMailboxRune(r, i == 0) {
			return invalid(code, "Use only letters, digits, dots, hyphens and underscores in the local part.")
		}
	}
	key := LocalKey(s)
	if !isDotAtom(key) || len(key) > MaxLocalPart {
		return invalid(code, "The local part holds a character that has no stable form.")
	}
	if strings.HasPrefix(key, reservedPrefix) {
		return invalid("reserved_local_part", "Local parts that begin with b- are reserved for return paths.")
	}
	return nil
}

// isMailboxRune reports whether r may be in a new local part. It accepts combining marks, except as
// the first character, as many scripts need them.
func isMailboxRune(r rune, first bool) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			r == '.' || r == '-' || r == '_'
	}
	return unicode.IsLetter(r) || unicode.Is(unicode.Nd, r) || !first && unicode.IsMark(r)
}
