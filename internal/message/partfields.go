// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
)

// describePart sets the fields of part p from the header just read.
func (s *Scanner) describePart(p *Part) {
	isMessage := p.Parent < 0 || s.ix.Parts[p.Parent].Kind == Embedded
	s.badContentType = false
	for rest := []byte(Header(s.headerBuf).WithoutBOM()); ; {
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
	if s.badContentType && (p.Disposition == "attachment" || p.hasFilename()) { // certainly not a text
		p.Type, p.Subtype = "application", "octet-stream"
	}
	if isMessage && p.Parent >= 0 {
		env := []byte(emptyEnvelope)
		if s.envelopeBytes < maxNestedEnvelopes {
			env = AppendEnvelope(nil, s.headerBuf)
		}
		s.envelopeBytes += len(env)
		s.ix.Parts[p.Parent].Envelope = env
	}
}

// setField sets a part's field from a Content- field. The first field of each name counts. Once the
// descriptions of a message's parts exceed maxDescription, setField omits further ones, and uses an
// unknown type or encoding.
func (s *Scanner) setField(p *Part, f Field) {
	name := f.Name[8:]
	switch {
	case equalFold(name, "type") && p.Type == "":
		p.Type, p.Subtype, p.Params = parseContentType(f.Value)
		if p.Type == "" {
			p.Type, p.Subtype, s.badContentType = "text", "plain", true
		}
		if !s.reserve(storageCost(p.Type) + storageCost(p.Subtype)) {
			p.Type, p.Subtype = "application", "octet-stream"
		}
		p.Params = s.describedParams(p.Params)
	case equalFold(name, "transfer-encoding") && p.Encoding == "":
		if p.Encoding = parseEncoding(f.Value); !s.reserve(storageCost(p.Encoding)) {
			p.Encoding = "x-unknown"
		}
	case equalFold(name, "disposition") && p.Disposition == "":
		lead, params := parseParams(f.Value)
		if p.Disposition = lowerString(bytes.Trim(lead, quotationMarks)); !s.reserve(storageCost(p.Disposition)) {
			p.Disposition = "attachment"
		}
		p.DispositionParams = s.describedParams(params)
	case equalFold(name, "id") && p.ID == "":
		p.ID = s.describedText(f)
	case equalFold(name, "description") && p.Description == "":
		p.Description = s.describedText(f)
	case equalFold(name, "md5") && p.MD5 == "":
		p.MD5 = s.describedText(f)
	case equalFold(name, "location") && p.Location == "":
		p.Location = s.describedText(f)
	case equalFold(name, "language") && p.Languages == nil:
		for _, l := range bytes.SplitN(f.Value, []byte{','}, maxParams) {
			if l = firstToken(l); len(l) > 0 && s.reserve(stringCost+len(l)) {
				p.Languages = append(p.Languages, string(l))
			}
		}
	}
}

// Costs of a text and a parameter, in addition to their bytes.
const (
	stringCost = 16
	paramCost  = 2 * stringCost
)

// storageCost returns the cost of a text. Common strings cost nothing.
func storageCost(text string) int {
	if len(text) == 0 {
		return 0
	}
	if len(text) <= maxCommonString {
		if _, common := internString([]byte(text)); common {
			return 0
		}
	}
	return stringCost + len(text)
}

// reserve counts n bytes of descriptions, and reports whether they are within maxDescription.
func (s *Scanner) reserve(n int) bool {
	if s.descriptionBytes+n > maxDescription {
		return false
	}
	s.descriptionBytes += n
	return true
}

func (s *Scanner) describedText(f Field) string {
	text := f.Unfolded()
	if !s.reserve(storageCost(text)) {
		return ""
	}
	return text
}

// describedParams returns the parameters that fit into maxDescription.
func (s *Scanner) describedParams(list []Param) []Param {
	for i, p := range list {
		if !s.reserve(paramCost + storageCost(p.Name) + storageCost(p.Value)) {
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

// commentLength returns the length of the comment at the start of b. An unclosed comment takes all.
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

// isTokenByte implements RFC 2045 §5.1.
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

// lowerString returns b in lower case. It doesn't allocate for common strings.
func lowerString(b []byte) string {
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
	if w, ok := internString(low); ok {
		return w
	}
	return string(low)
}
