// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
)

// describe fills in what the header just read says about part p.
func (s *Scanner) describe(p *Part) {
	isMessage := p.Parent < 0 || s.ix.Parts[p.Parent].Kind == Embedded
	s.unclear = false
	for rest := []byte(Header(s.buf).WithoutMark()); ; {
		f, next, ok := nextField(rest)
		if !ok {
			break
		}
		rest = next
		if len(f.Name) > 8 && equalFold(f.Name[:8], "content-") {
			s.setField(p, f)
		}
	}
	if p.Type == "" {
		p.Type, p.Subtype = "text", "plain"
		if p.Parent >= 0 {
			q := &s.ix.Parts[p.Parent]
			if q.Kind == Multipart && q.Subtype == "digest" { // RFC 2046 §5.1.5
				p.Type, p.Subtype = "message", "rfc822"
			}
		}
	}
	if s.unclear && (p.Disposition == "attachment" || p.named()) { // it is no text, whatever it is
		p.Type, p.Subtype = "application", "octet-stream"
	}
	if isMessage && p.Parent >= 0 {
		env := []byte(emptyEnvelope)
		if s.nested < maxNestedEnvelopes {
			env = AppendEnvelope(nil, s.buf)
		}
		s.nested += len(env)
		s.ix.Parts[p.Parent].Envelope = env
	}
}

// setField takes over a Content- field. The first of each name counts. Once there is
// too much of them in a message, what describes a part is left out; a type or an
// encoding becomes one that nobody knows.
func (s *Scanner) setField(p *Part, f Field) {
	name := f.Name[8:]
	switch {
	case equalFold(name, "type") && p.Type == "":
		p.Type, p.Subtype, p.Params = parseContentType(f.Value)
		if p.Type == "" {
			p.Type, p.Subtype, s.unclear = "text", "plain", true
		}
		if !s.room(costOf(p.Type) + costOf(p.Subtype)) {
			p.Type, p.Subtype = "application", "octet-stream"
		}
		p.Params = s.params(p.Params)
	case equalFold(name, "transfer-encoding") && p.Encoding == "":
		if p.Encoding = parseEncoding(f.Value); !s.room(costOf(p.Encoding)) {
			p.Encoding = "x-unknown"
		}
	case equalFold(name, "disposition") && p.Disposition == "":
		lead, params := parseParams(f.Value)
		if p.Disposition = lower(bytes.Trim(lead, quotationMarks)); !s.room(costOf(p.Disposition)) {
			p.Disposition = "attachment"
		}
		p.DispositionParams = s.params(params)
	case equalFold(name, "id") && p.ID == "":
		p.ID = s.text(f)
	case equalFold(name, "description") && p.Description == "":
		p.Description = s.text(f)
	case equalFold(name, "md5") && p.MD5 == "":
		p.MD5 = s.text(f)
	case equalFold(name, "location") && p.Location == "":
		p.Location = s.text(f)
	case equalFold(name, "language") && p.Languages == nil:
		for _, l := range bytes.SplitN(f.Value, []byte{','}, maxParams) {
			if l = firstToken(l); len(l) > 0 && s.room(stringCost+len(l)) {
				p.Languages = append(p.Languages, string(l))
			}
		}
	}
}

// What a text, and a parameter, take beside their bytes.
const (
	stringCost = 16
	paramCost  = 2 * stringCost
)

// costOf returns what a text takes. Common words take nothing.
func costOf(text string) int {
	if len(text) == 0 {
		return 0
	}
	if len(text) <= maxCommonWord {
		if _, common := commonWord([]byte(text)); common {
			return 0
		}
	}
	return stringCost + len(text)
}

// room reports whether n more bytes may describe the parts, and counts them.
func (s *Scanner) room(n int) bool {
	if s.told+n > maxDescription {
		return false
	}
	s.told += n
	return true
}

func (s *Scanner) text(f Field) string {
	text := f.Text()
	if !s.room(costOf(text)) {
		return ""
	}
	return text
}

// params returns those of the parameters that there is room for.
func (s *Scanner) params(list []Param) []Param {
	for i, p := range list {
		if !s.room(paramCost + costOf(p.Name) + costOf(p.Value)) {
			return slices.Clone(list[:i])
		}
	}
	return list
}

// firstToken returns the first token of v, after white space and comments.
func firstToken(v []byte) []byte {
	for {
		v = trimSpace(v)
		if len(v) == 0 || v[0] != '(' {
			break
		}
		v = v[commentLength(v):]
	}
	n := 0
	for n < len(v) && isTokenByte(v[n]) {
		n++
	}
	return v[:n]
}

// commentLength returns the length of the comment that b starts with. One
// that does not end takes all.
func commentLength(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// isTokenByte is RFC 2045 §5.1.
func isTokenByte(c byte) bool {
	if c <= ' ' || c >= 0x7f {
		return false
	}
	switch c {
	case '(', ')', '<', '>', '@', ',', ';', ':', '\\', '"', '/', '[', ']', '?', '=':
		return false
	}
	return true
}

func isToken(b []byte) bool {
	for _, c := range b {
		if !isTokenByte(c) {
			return false
		}
	}
	return len(b) > 0
}

// lower returns b in lower case, of the common words without allocating.
func lower(b []byte) string {
	var buf [32]byte
	if len(b) > len(buf) {
		return string(bytes.ToLower(b))
	}
	low := buf[:len(b)]
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		low[i] = c
	}
	if w, ok := commonWord(low); ok {
		return w
	}
	return string(low)
}
