// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"
)

// contentProfile has the properties of a content's bytes, seen as lines that end in CRLF.
type contentProfile struct {
	size, eightBit            int64 // bytes; those above 127
	lineLength, maxLineLength int64 // octets of the current line and of the longest
	nul, bareLineEnds         bool  // NUL, and CR or LF alone
	notUTF8                   bool
	cr                        bool
	partialRune               []byte // incomplete character at the end of the input so far
}

func profileOf(s string) contentProfile {
	var p contentProfile
	p.add([]byte(s))
	p.finish()
	return p
}

func readProfile(r io.Reader) (contentProfile, error) {
	var p contentProfile
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		p.add(buf[:n])
		if err == io.EOF {
			p.finish()
			return p, nil
		}
		if err != nil {
			return p, err
		}
	}
}

func (p *contentProfile) add(b []byte) {
	p.size += int64(len(b))
	for _, c := range b {
		if p.cr != (c == '\n') {
			p.bareLineEnds = true
		}
		p.cr = c == '\r'
		switch {
		case c == '\n':
			p.lineLength = 0
			continue
		case c == 0:
			p.nul = true
		case c >= 0x80:
			p.eightBit++
		}
		if p.lineLength++; !p.cr {
			p.maxLineLength = max(p.maxLineLength, p.lineLength)
		}
	}
	if p.notUTF8 || p.eightBit == 0 {
		return
	}
	b = append(p.partialRune, b...)
	end := len(b)
	for end > 0 && end > len(b)-utf8.UTFMax && !utf8.FullRune(b[runeStart(b[:end]):]) {
		end = runeStart(b[:end])
	}
	p.notUTF8 = !utf8.Valid(b[:end])
	p.partialRune = append([]byte(nil), b[end:]...)
}

// runeStart returns where the last character of b may start.
func runeStart(b []byte) int {
	i := len(b) - 1
	for i > 0 && len(b)-i < utf8.UTFMax && !utf8.RuneStart(b[i]) {
		i--
	}
	return i
}

func (p *contentProfile) finish() {
	p.bareLineEnds = p.bareLineEnds || p.cr
	p.notUTF8 = p.notUTF8 || len(p.partialRune) > 0
}

// isSevenBit reports whether the content can be in 7-bit mail unencoded.
func (p contentProfile) isSevenBit() bool {
	return p.eightBit == 0 && !p.nul && !p.bareLineEnds && p.maxLineLength <= maxLineLength
}

// textEncoding returns the best transfer encoding for a text.
func (p contentProfile) textEncoding() string {
	switch {
	case p.isSevenBit():
		return "7bit"
	case p.nul || p.eightBit > p.size/2:
		return "base64"
	}
	return "quoted-printable"
}

// encode writes r in a transfer encoding. In quoted-printable, all line ends become CRLF.
func encode(w io.Writer, r io.Reader, encoding string) error {
	var err error
	switch encoding {
	case "base64":
		err = encodeBase64(w, r)
	case "quoted-printable":
		qp := quotedprintable.NewWriter(w)
		if _, err = io.Copy(qp, r); err == nil {
			err = qp.Close()
		}
	default:
		_, err = io.Copy(w, r)
	}
	if err != nil {
		return fmt.Errorf("encoding content: %w", err)
	}
	return nil
}

// encodeBase64 writes lines of 76 characters, with a line end between them.
func encodeBase64(w io.Writer, r io.Reader) error {
	const perLine, lines = 57, 256
	in := make([]byte, perLine*lines)
	out := make([]byte, 0, 78*lines)
	first := true
	for {
		n, err := io.ReadFull(r, in)
		out = out[:0]
		for b := in[:n]; len(b) > 0; {
			k := min(len(b), perLine)
			if !first {
				out = append(out, "\r\n"...)
			}
			first = false
			out = base64.StdEncoding.AppendEncode(out, b[:k])
			b = b[k:]
		}
		if _, werr := w.Write(out); werr != nil {
			return werr
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// toCRLF converts all line ends to CRLF.
func toCRLF(s string) string {
	if strings.IndexByte(s, '\r') < 0 {
		return strings.ReplaceAll(s, "\n", "\r\n")
	}
	if n := strings.Count(s, "\r\n"); n == strings.Count(s, "\r") && n == strings.Count(s, "\n") {
		return s // the usual case
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	return strings.ReplaceAll(s, "\n", "\r\n")
}
