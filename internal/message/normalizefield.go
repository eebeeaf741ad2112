// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
)

// fieldNormalizer rewrites header fields of a message from its author so that every host accepts
// them. Bytes above 127 become encoded words (RFC 2047), or RFC 2231 in parameters, and lines over
// 998 octets are folded. Other fields stay unchanged.
type fieldNormalizer struct {
	charset string // of bytes that are not UTF-8; "" or unknown: windows-1252
	fieldWriter
}

// Fields with addresses (RFC 5322 §3.6, RFC 8098).
var addressFields = []string{
	"From", "Sender", "Reply-To", "To", "Cc", "Bcc", "Resent-From", "Resent-Sender", "Resent-To", "Resent-Cc", "Resent-Bcc",
	"Resent-Reply-To", "Disposition-Notification-To", "Return-Receipt-To", "Mail-Followup-To", "Errors-To",
}

// Fields with Message-IDs.
var idFields = []string{"Message-ID", "Resent-Message-ID", "In-Reply-To", "References", "Content-ID"}

// Fields for programs, in which encoded words have no meaning.
var structuredFields = []string{
	"Received", "Return-Path", "Delivered-To", "Date", "Resent-Date", "MIME-Version", "Content-Transfer-Encoding", "Authentication-Results",
	"DKIM-Signature", "ARC-Seal", "ARC-Message-Signature", "ARC-Authentication-Results", "Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post",
	"List-Post", "List-Help", "List-Subscribe", "List-Owner", "List-Archive",
}

// add appends a field. ok is false if one of its lines is longer than 998 octets and can't be
// folded.
func (m *fieldNormalizer) add(f Field) (ok bool) {
	eightBit := traitsOf(f.Raw)&EightBit != 0
	if !eightBit && !hasLongLine(f.Raw) {
		m.dst = append(m.dst, f.Raw...)
		return true
	}
	start := len(m.dst)
	is := func(names []string) bool { return slices.ContainsFunc(names, f.Is) }
	text, isText := m.decoded(f.Value), false
	switch {
	case len(f.Name) == 0 || len(f.Value) == MaxField || boundaryParam(contentTypeParams(f)) != "" && !isPrintableASCII(boundaryParam(contentTypeParams(f))):
		m.dst = append(m.dst, f.Raw...)
	case is(addressFields):
		m.begin(string(f.Name))
		m.addressList(text)
		m.end()
	case is(idFields):
		m.begin(string(f.Name))
		for _, id := range ParseMessageIDs(text) {
			if isPrintableASCII(id) {
				m.put(id)
			}
		}
		m.end()
	case is(structuredFields):
		m.dst = append(m.dst, replaceNonASCII(f.Raw)...)
	case f.Is("Content-Type"), f.Is("Content-Disposition"):
		m.begin(string(f.Name))
		m.params(text)
		m.end()
	case eightBit:
		isText = true
		m.begin(string(f.Name))
		m.unstructured(DecodeWords(text))
		m.end()
	default:
		isText = true
		m.dst = append(m.dst, f.Raw...)
	}
	if !hasLongLine(m.dst[start:]) {
		return true
	}
	list := is(addressFields)
	folded, ok := foldLong(m.dst[start:], list)
	if !ok && isText {
		m.dst = m.dst[:start]
		m.begin(string(f.Name))
		m.encodedWords(DecodeWords(text))
		m.end()
		return !hasLongLine(m.dst[start:])
	}
	m.dst = append(m.dst[:start], folded...)
	return ok
}

// decoded returns a value on one line, in UTF-8.
func (m *fieldNormalizer) decoded(value []byte) string {
	b := unfold(nil, value)
	if utf8.Valid(b) {
		return string(b)
	}
	return toUTF8(m.charset, b)
}

// addressList writes a list of addresses. Display names and comments that are not ASCII become
// encoded words, and domains become A-labels. Everything else stays unchanged.
func (m *fieldNormalizer) addressList(s string) {
	var phrase []string // tokens that may be a display name
	flush := func() {
		if joined := strings.Join(phrase, " "); isPrintableASCII(joined) {
			for _, piece := range phrase {
				m.put(piece)
			}
		} else {
			for i, piece := range phrase {
				phrase[i] = DecodeWords(unquoteQuoted(piece))
			}
			m.encodedWords(strings.Join(phrase, " "))
		}
		phrase = nil
	}
	for s = strings.TrimLeft(s, " \t"); s != ""; s = strings.TrimLeft(s, " \t") {
		n := addressTokenLength(s)
		token := s[:n]
		s = s[n:]
		switch c := token[0]; {
		case c == ',' || c == ';' || c == ':':
			flush()
			m.putNoSpace(token)
		case c == '(':
			flush()
			m.comment(token)
		case c == '<' && !isPrintableASCII(token):
			flush()
			m.put("<" + withASCIIDomain(strings.TrimSuffix(token[1:], ">")) + ">")
		case c == '<':
			flush()
			m.put(token)
		case strings.IndexByte(token, '@') >= 0 && c != '"', c == '"' && strings.HasPrefix(s, "@"):
			flush()
			if c == '"' { // local part
				n := addressTokenLength(s)
				token += s[:n]
				s = s[n:]
			}
			m.put(withASCIIDomain(token))
		default:
			phrase = append(phrase, token)
		}
	}
	flush()
}

// addressTokenLength returns the length of the quoted string, comment, angle address,
// delimiter or word that s begins with.
func addressTokenLength(s string) int {
	switch s[0] {
	case ',', ';', ':':
		return 1
	case '(':
		return commentLength([]byte(s))
	case '<':
		if end := strings.IndexByte(s, '>'); end >= 0 {
			return end + 1
		}
		return len(s)
	case '"':
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(s)
	}
	if end := strings.IndexAny(s[1:], " \t,;:(<\""); end >= 0 {
		return end + 1
	}
	return len(s)
}

// unquoteQuoted returns the content of a quoted string; any other token is returned unchanged.
func unquoteQuoted(s string) string {
	if s == "" || s[0] != '"' {
		return s
	}
	return unquote([]byte(s))
}

// comment writes a comment, in encoded words if it is not ASCII.
func (m *fieldNormalizer) comment(token string) {
	if isPrintableASCII(token) {
		m.put(token)
		return
	}
	m.putNoSpace(" (")
	m.encodedWords(DecodeWords(strings.TrimSuffix(token[1:], ")")))
	m.putNoSpace(")")
}

// withASCIIDomain returns an address with its domain as A-labels, if it has one.
func withASCIIDomain(s string) string {
	if isPrintableASCII(s) {
		return s
	}
	if a, err := address.Parse(s); err == nil {
		return a.String()
	}
	return s
}

// params writes a value with parameters (RFC 2045 §5.1).
func (m *fieldNormalizer) params(s string) {
	lead, params := parseParams([]byte(s))
	m.put(replaceNonASCII(string(lead)))
	for _, p := range params {
		switch {
		case p.Name == "filename" && !isPrintableASCII(p.Value):
			m.filenameParameter(CleanFilename(DecodeWords(p.Value)))
		case isPrintableASCII(p.Value) && isToken([]byte(p.Value)):
			m.putNoSpace(";")
			m.put(p.Name + "=" + p.Value)
		case isPrintableASCII(p.Value):
			m.putNoSpace(";")
			m.put(p.Name + "=" + quote(p.Value))
		case p.Name == "name": // programs understand encoded words there, and nothing else
			m.nameParameter(CleanFilename(DecodeWords(p.Value)))
		default:
			m.putNoSpace(";")
			m.put(strings.TrimSuffix(p.Name, "*") + "*=utf-8''" + percentEncode(DecodeWords(p.Value)))
		}
	}
}

// contentTypeParams returns the parameters of a Content-Type field.
func contentTypeParams(f Field) []Param {
	if !f.Is("Content-Type") {
		return nil
	}
	_, params := parseParams(f.Value)
	return params
}

// replaceNonASCII replaces each character above 127 by "?".
func replaceNonASCII[T string | []byte](s T) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, string(s))
}

// hasLongLine reports whether a line exceeds the limit of RFC 5322 §2.1.1.
func hasLongLine(raw []byte) bool {
	for len(raw) > maxLineLength {
		n := lineEnd(raw)
		if len(trimLineEnd(raw[:n])) > maxLineLength {
			return true
		}
		raw = raw[n:]
	}
	return false
}

// foldLong folds the lines of a field that are too long: at white space, and in a list after a
// comma. ok is false if that was not enough.
func foldLong(raw []byte, list bool) (folded []byte, ok bool) {
	ok = true
	for len(raw) > 0 {
		n := lineEnd(raw)
		line := trimLineEnd(raw[:n])
		end := raw[len(line):n]
		raw = raw[n:]
		for len(line) > maxLineLength {
			at, insert := foldPosition(line, list)
			if at == 0 {
				ok = false
				break
			}
			folded = append(append(folded, line[:at]...), "\r\n"...)
			if insert {
				folded = append(folded, ' ')
			}
			line = line[at:]
		}
		folded = append(append(folded, line...), end...)
	}
	return folded, ok
}

// foldPosition returns where to fold a line, 0 for nowhere: the last position within 78 octets,
// else the first within 998. insert reports whether white space must be inserted.
func foldPosition(line []byte, list bool) (at int, insert bool) {
	content, quoted := false, false
	for i := 0; i < min(len(line), maxLineLength); i++ {
		c := line[i]
		blank := c == ' ' || c == '\t'
		if c == '"' {
			quoted = !quoted
		}
		if at > 0 && i > foldColumn {
			break
		}
		switch {
		case blank && content && len(bytes.TrimLeft(line[i:], " \t")) > 0:
			at, insert = i, false
		case c == ',' && list && content && !quoted && i+1 < len(line) && line[i+1] != ' ' && line[i+1] != '\t':
			at, insert = i+1, true
		}
		content = content || !blank && c != ':'
	}
	return at, insert
}
