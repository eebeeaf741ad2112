// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
)

// Limits on the input of a text.
const (
	maxRawText   = 1 << 20 // decoded octets of all parts together
	maxTextParts = 100     // joined parts
)

// text joins the parts of a text as UTF-8 with LF line ends, without control characters other than
// TAB. It returns nil if there are no parts.
func (s *messageReader) text(ix *message.Structure, parts []int) (text *string, more bool, err error) {
	if len(parts) == 0 {
		return nil, false, nil
	}
	var b strings.Builder
	left := int64(maxRawText)
	for k, i := range parts {
		if k == maxTextParts || left <= 0 || b.Len() >= MaxText {
			more = true
			break
		}
		p := &ix.Parts[i]
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		span := p.Body
		if span.Len = min(span.Len, left); span.Len < p.Body.Len {
			more = true
		}
		left -= span.Len
		one, cut, err := s.partText(p, span, MaxText-b.Len())
		if err != nil {
			return nil, false, err
		}
		b.WriteString(one)
		if more = more || cut; more {
			break
		}
	}
	out := b.String()
	return &out, more, nil
}

// partText decodes one part, to at most capacity bytes.
func (s *messageReader) partText(p *message.Part, span message.Span, capacity int) (text string, more bool, err error) {
	if capacity <= 0 {
		return "", span.Len > 0, nil
	}
	in := &partReader{r: s.section(span), truncated: span.Len < p.Body.Len}
	most := int64(2*capacity + utf8.UTFMax) // half of it may be line ends
	raw, err := io.ReadAll(limitParams(p).Text(in, most))
	if in.err != nil {
		return "", false, fmt.Errorf("reading a text of a message: %w", in.err)
	}
	// Any other error is errTruncated or a charset error.
	if more = err != nil || int64(len(raw)) == most; more {
		raw = trimPartialRune(raw)
	}
	text = normalizeText(string(raw))
	if len(text) > capacity {
		text, more = truncate(text, capacity), true
	}
	return text, more, nil
}

// trimPartialRune removes an incomplete character at the end.
func trimPartialRune(b []byte) []byte {
	for k := len(b) - 1; k >= 0 && k > len(b)-utf8.UTFMax; k-- {
		if utf8.RuneStart(b[k]) {
			if !utf8.FullRune(b[k:]) {
				return b[:k]
			}
			break
		}
	}
	return b
}

// normalizeText converts line ends to LF and removes control characters.
func normalizeText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r < ' ' && r != '\n' && r != '\t', r == 0x7f:
			return -1
		}
		return r
	}, s)
}

// partReader records read errors.
type partReader struct {
	r         io.Reader
	truncated bool // whether the input goes on after its end
	err       error
}

// errTruncated makes decoders treat a cut character as incomplete instead of another one.
var errTruncated = errors.New("there is more")

// Read implements io.Reader.
func (n *partReader) Read(p []byte) (int, error) {
	k, err := n.r.Read(p)
	if err == io.EOF && n.truncated { //nolint:errorlint // what io.Reader promises
		return k, errTruncated
	}
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		n.err = err
	}
	return k, err
}
