// SPDX-License-Identifier: Apache-2.0

package mailauth

import "strings"

// Limits on a parsed Authentication-Results field.
const (
	maxResultsField = 32 << 10
	maxMethods      = 100
	maxProperties   = 20 // of one method
)

// ResultsField is an Authentication-Results field (RFC 8601 §2.2).
type ResultsField struct {
	AuthServID string // authserv-id
	Methods    []MethodResult
}

// MethodResult is the result of one method.
type MethodResult struct {
	Name       string // in lower case
	Result     Result // in lower case
	Properties [][2]string
}

// Property returns the value of a property such as header.from.
func (m *MethodResult) Property(name string) (string, bool) {
	for _, p := range m.Properties {
		if strings.EqualFold(p[0], name) {
			return p[1], true
		}
	}
	return "", false
}

// ParseResultsField parses a field's value as far as possible and omits malformed methods. ok
// reports whether it parsed everything.
func ParseResultsField(value string) (r ResultsField, ok bool) {
	if len(value) > maxResultsField {
		return r, false
	}
	l := resultsReader{s: value}
	if r.AuthServID, ok = l.word(); !ok {
		return r, false
	}
	if c := l.peek(); c >= '0' && c <= '9' { // a version
		_, _ = l.word()
	}
	for l.peek() == ';' {
		l.pos++
		m, read := l.method()
		if !read {
			end := l.peek() == ';' || l.pos == len(l.s)
			ok = ok && end && (m.Name == "" || m.Name == "none")
			l.skipMethod()
			continue
		}
		if len(r.Methods) == maxMethods {
			return r, false
		}
		r.Methods = append(r.Methods, m)
	}
	return r, ok && l.pos == len(l.s)
}

// resultsReader splits a value into words and skips comments.
type resultsReader struct {
	s   string
	pos int
}

// method reads method=result and its properties.
func (l *resultsReader) method() (m MethodResult, ok bool) {
	name, value, ok := l.pair()
	m.Name, _, _ = strings.Cut(strings.ToLower(name), "/")
	if !ok {
		return m, false
	}
	m.Result = Result(strings.ToLower(value))
	for len(m.Properties) < maxProperties && l.peek() != ';' && l.peek() != 0 {
		if name, value, ok = l.pair(); !ok {
			return m, false
		}
		m.Properties = append(m.Properties, [2]string{name, value})
	}
	return m, l.peek() == ';' || l.pos == len(l.s)
}

func (l *resultsReader) pair() (name, value string, ok bool) {
	if name, ok = l.word(); !ok {
		return "", "", false
	}
	if l.peek() != '=' {
		return name, "", false
	}
	l.pos++
	value, ok = l.word()
	return name, value, ok
}

// skipMethod skips to the next semicolon outside comments and quotes.
func (l *resultsReader) skipMethod() {
	for c := l.peek(); c != ';' && c != 0; c = l.peek() {
		if _, ok := l.word(); !ok {
			l.pos++
		}
	}
}

// peek skips white space and comments and returns the next byte, or 0 at the end.
func (l *resultsReader) peek() byte {
	depth := 0
	for ; l.pos < len(l.s); l.pos++ {
		switch c := l.s[l.pos]; {
		case c == '\\' && depth > 0:
			l.pos++
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth > 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0:
		default:
			return c
		}
	}
	l.pos = len(l.s)
	return 0
}

// word reads a token, a property's value, or a quoted string.
func (l *resultsReader) word() (string, bool) {
	if l.peek() == '"' {
		var b strings.Builder
		for l.pos++; l.pos < len(l.s); l.pos++ {
			switch c := l.s[l.pos]; {
			case c == '"':
				l.pos++
				return b.String(), true
			case c == '\\' && l.pos+1 < len(l.s):
				l.pos++
				b.WriteByte(l.s[l.pos])
			default:
				b.WriteByte(c)
			}
		}
		return "", false
	}
	start := l.pos
	for l.pos < len(l.s) && l.s[l.pos] > ' ' && strings.IndexByte(`;=()"`, l.s[l.pos]) < 0 {
		l.pos++
	}
	return l.s[start:l.pos], l.pos > start
}
