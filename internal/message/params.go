// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// parseParams parses `lead; name=value; …` (RFC 2045 §5.1) leniently: values with spaces need no
// quotes, closing quotes are optional, and comments are skipped.
func parseParams(v []byte) (lead []byte, params []Param) {
	lead, rest, _ := bytes.Cut(v, []byte{';'})
	if bytes.IndexByte(lead, '(') >= 0 {
		lead, rest = cutValue(v)
		lead = stripComments(lead)
	}
	lead = trimSpace(lead)
	split := false
	for len(rest) > 0 && len(params) < maxParams {
		eq := bytes.IndexAny(rest, "=;")
		if eq < 0 {
			break
		}
		name := trimSpace(rest[:eq])
		if bytes.IndexByte(name, '(') >= 0 {
			name = trimSpace(stripComments(name))
		}
		if rest[eq] == ';' {
			rest = rest[eq+1:]
			continue
		}
		var value []byte
		value, rest = cutValue(rest[eq+1:])
		if !isToken(name) {
			continue
		}
		if params == nil {
			params = make([]Param, 0, 2)
		}
		params = append(params, Param{lowerString(name), unquote(value)})
		split = split || bytes.IndexByte(name, '*') > 0
	}
	if split {
		params = joinContinuations(params)
	}
	return lead, params
}

// cutValue splits b at the first semicolon outside quotes and comments.
func cutValue(b []byte) (value, rest []byte) {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '(' && !quoted:
			i += commentLength(b[i:]) - 1
		case c == ';' && !quoted:
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}

func stripComments(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] == '(' {
			i += commentLength(b[i:]) - 1
			continue
		}
		out = append(out, b[i])
	}
	return out
}

// unquote returns a parameter's value: a quoted string's content, or the token, which a comment may
// follow after a space.
func unquote(v []byte) string {
	v = trimSpace(v)
	if len(v) > 0 && v[0] == '(' {
		v = trimSpace(v[commentLength(v):])
	}
	if len(v) == 0 {
		return ""
	}
	if v[0] != '"' {
		if i := bytes.IndexByte(v, '('); i > 0 && isSpace(v[i-1]) && v[len(v)-1] == ')' {
			v = trimSpace(v[:i])
		}
		var buf [128]byte
		out := unfold(buf[:0], v)
		if w, ok := internString(out); ok {
			return w
		}
		return string(out)
	}
	var buf [128]byte
	out := buf[:0]
	for i := 1; i < len(v); i++ {
		c := v[i]
		if c == '"' {
			break
		}
		if c == '\\' && i+1 < len(v) {
			i++
			c = v[i]
		}
		if c != '\r' && c != '\n' && c != 0 {
			out = append(out, c)
		}
	}
	return string(out)
}

// joinContinuations joins name*0, name*1*, … (RFC 2231 §3). If a piece is percent-encoded, the
// whole is, and the name ends in "*".
func joinContinuations(params []Param) []Param {
	type piece struct {
		n        int
		extended bool
		value    string
	}
	var joined []Param
	pieces := map[string][]piece{}
	for _, p := range params {
		name, extended := strings.CutSuffix(p.Name, "*")
		base, digits, ok := strings.Cut(name, "*")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 0 {
			joined = append(joined, p)
			continue
		}
		if pieces[base] == nil {
			joined = append(joined, Param{Name: base + "*0"})
		}
		pieces[base] = append(pieces[base], piece{n, extended, p.Value})
	}
	for i := range joined {
		base, ok := strings.CutSuffix(joined[i].Name, "*0")
		all := pieces[base]
		if !ok || all == nil {
			continue
		}
		slices.SortStableFunc(all, func(a, b piece) int { return a.n - b.n })
		extended := slices.ContainsFunc(all, func(p piece) bool { return p.extended })
		var value strings.Builder
		if extended && !all[0].extended {
			value.WriteString("''")
		}
		for k, p := range all {
			if p.n != k {
				break // pieces after a gap are ignored
			}
			if extended && !p.extended {
				p.value = percentEncode(p.value)
			}
			value.WriteString(p.value)
		}
		joined[i] = Param{base, value.String()}
		if extended {
			joined[i].Name = base + "*"
		}
	}
	return joined
}

const upperHex = "0123456789ABCDEF"

// percentEncode encodes everything except the attribute-char of RFC 2231 §7.
func percentEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isTokenByte(c) && c != '*' && c != '\'' && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

// decodeExtended decodes charset'language'percent-encoded text to UTF-8.
func decodeExtended(v string) string {
	charset, rest, ok := strings.Cut(v, "'")
	if ok {
		if _, text, ok := strings.Cut(rest, "'"); ok {
			return toUTF8(charset, percentDecode(text))
		}
	}
	return toUTF8("", percentDecode(v))
}

func percentDecode(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := hexValue(s[i+1]), hexValue(s[i+2])
			if hi >= 0 && lo >= 0 {
				out = append(out, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return out
}

// hexValue returns the value of a hexadecimal digit, or -1.
func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
