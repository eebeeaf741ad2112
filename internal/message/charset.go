// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/transform"
)

// DecodeWords returns a header text as UTF-8 with its encoded words (RFC 2047) decoded. It is
// lenient: invalid UTF-8 and words with an unknown charset count as windows-1252, and broken words
// stay as they are. Control characters become spaces.
func DecodeWords(s string) string {
	if isPrintableASCII(s) && !strings.Contains(s, "=?") {
		return s
	}
	return decodeWords(s, toUTF8, true)
}

// decodeWords decodes encoded words with a function. With together, adjacent words of one charset
// are decoded as one.
func decodeWords(s string, decode func(cs string, b []byte) string, together bool) string {
	var out strings.Builder
	var open []byte // bytes of adjacent words of one charset, which may split characters
	openCharset := ""
	flush := func() {
		if open != nil {
			out.WriteString(decode(openCharset, open))
			open = nil
		}
	}
	for s != "" {
		i := strings.Index(s, "=?")
		if i < 0 {
			break
		}
		cs, data, n := parseEncodedWord(s[i:])
		if n == 0 {
			flush()
			out.WriteString(toUTF8("", []byte(s[:i+2])))
			s = s[i+2:]
			continue
		}
		if gap := s[:i]; open == nil || strings.Trim(gap, " \t\r\n") != "" {
			flush()
			out.WriteString(toUTF8("", []byte(gap)))
		}
		if open != nil && (!together || !strings.EqualFold(cs, openCharset)) {
			flush()
		}
		if open == nil {
			open, openCharset = []byte{}, cs
		}
		open = append(open, data...)
		s = s[i+n:]
	}
	flush()
	out.WriteString(toUTF8("", []byte(s)))
	return cleanText(out.String())
}

// parseEncodedWord parses the encoded word at the start of s. n is its length, 0 if there is none.
func parseEncodedWord(s string) (cs string, data []byte, n int) {
	const most = 4096
	head := s[:min(len(s), most)]
	cs, rest, ok := strings.Cut(head[2:], "?")
	if !ok || cs == "" || strings.ContainsAny(cs, " \t\"()<>") || len(rest) < 2 || rest[1] != '?' {
		return "", nil, 0
	}
	cs, _, _ = strings.Cut(cs, "*") // RFC 2231 §5: language
	text, _, ok := strings.Cut(rest[2:], "?=")
	if !ok {
		return "", nil, 0
	}
	n = len(head) - len(rest) + 2 + len(text) + 2
	switch rest[0] {
	case 'q', 'Q':
		return cs, decodeQWord(text), n
	case 'b', 'B':
		return cs, decodeBWord(text), n
	}
	return "", nil, 0
}

func decodeQWord(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '_':
			out = append(out, ' ')
		case c == '=' && i+2 < len(s) && hexValue(s[i+1]) >= 0 && hexValue(s[i+2]) >= 0:
			out = append(out, byte(hexValue(s[i+1])<<4|hexValue(s[i+2])))
			i += 2
		default:
			out = append(out, c)
		}
	}
	return out
}

func decodeBWord(s string) []byte {
	clean := make([]byte, 0, len(s))
	for i := range len(s) {
		if base64Value(s[i]) >= 0 {
			clean = append(clean, s[i])
		}
	}
	if len(clean)%4 == 1 {
		clean = clean[:len(clean)-1]
	}
	out := make([]byte, len(clean))
	n, _ := base64.RawStdEncoding.Decode(out, clean)
	return out[:n]
}

// toUTF8 converts b from the charset. If the charset is unknown, b counts as UTF-8 if it is valid,
// else as windows-1252.
func toUTF8(cs string, b []byte) string {
	t := charsetDecoder(cs)
	if _, lenient := t.(*lenientDecoder); t == nil || lenient {
		if utf8.Valid(b) {
			return string(b)
		}
		t = charmap.Windows1252.NewDecoder()
	}
	out, _, err := transform.Bytes(t, b)
	if err != nil {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return string(out)
}

// cleanText returns s as valid UTF-8 on one line, for lists.
func cleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// isPrintableASCII reports whether s is printable ASCII.
func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
