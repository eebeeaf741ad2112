// SPDX-License-Identifier: Apache-2.0

package mailauth

import "strings"

// The bounds of an Authentication-Results field that is read.
const (
	maxResultText = 32 << 10
	maxMethods    = 100
	maxProperties = 20 // of one method
)

// Results is an Authentication-Results field (RFC 8601 §2.2).
type Results struct {
	Server  string // authserv-id
	Methods []Method
}

// Method is what one check came to.
type Method struct {
	Name       string // in lower case
	Result     Result // in lower case
	Properties [][2]string
}

// Property returns a property such as header.from.
func (m *Method) Property(name string) (string, bool) {
	for _, p := range m.Properties {
		if strings.EqualFold(p[0], name) {
			return p[1], true
		}
	}
	return "", false
}

// ParseResults reads a field's value as far as it can be read; ok tells that
// it was read whole. A method that is not as it should be is left out.
func ParseResults(value string) (r Results, ok bool) {
	if len(value) > maxResultText {
		return r, false
	}
	l := resultsReader{s: value}
	if r.Server, ok = l.word(); !ok {
		return r, false
	}
	if c := l.peek(); c >= '0' && c <= '9' { // a version
		_, _ = l.word()
	}
	for l.peek() == ';' {
		l.at++
		m, read := l.method()
		if !read {
			end := l.peek() == ';' || l.at == len(l.s)
			ok = ok && end && (m.Name == "" || m.Name == "none")
			l.skip()
			continue
		}
		if len(r.Methods) == maxMethods {
			return r, false
		}
		r.Methods = append(r.Methods, m)
	}
	return r, ok && l.at == len(l.s)
}

// resultsReader cuts a value into words, past comments.
type resultsReader struct {
	s  string
	at int
}

// method reads method=result and what follows.
func (l *resultsReader) method() (m Method, ok bool) {
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
	return m, l.peek() == ';' || l.at == len(l.s)
}

func (l *resultsReader) pair() (name, value string, ok bool) {
	if name, ok = l.word(); !ok {
		return "", "", false
	}
	if l.peek() != '=' {
		return name, "", false
	}
	l.at++
	value, ok = l.word()
	return name, value, ok
}

// skip goes to the next semicolon that is in no comment or quotes.
func (l *resultsReader) skip() {
	for c := l.peek(); c != ';' && c != 0; c = l.peek() {
		if _, ok := l.word(); !ok {
			l.at++
		}
	}
}

// peek returns the next byte past blanks and comments; 0 at the end.
func (l *resultsReader) peek() byte {
	depth := 0
	for ; l.at < len(l.s); l.at++ {
		switch c := l.s[l.at]; {
		case c == '\\' && depth > 0:
			l.at++
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth > 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0:
		default:
			return c
		}
	}
	l.at = len(l.s)
	return 0
}

// word reads a token, a property's value, or a quoted string.
func (l *resultsReader) word() (string, bool) {
	if l.peek() == '"' {
		var b strings.Builder
		for l.at++; l.at < len(l.s); l.at++ {
			switch c := l.s[l.at]; {
			case c == '"':
				l.at++
				return b.String(), true
			case c == '\\' && l.at+1 < len(l.s):
				l.at++
				b.WriteByte(l.s[l.at])
			default:
				b.WriteByte(c)
			}
		}
		return "", false
	}
	start := l.at
	for l.at < len(l.s) && l.s[l.at] > ' ' && strings.IndexByte(`;=()"`, l.s[l.at]) < 0 {
		l.at++
	}
	return l.s[start:l.at], l.at > start
}
