// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bufio"
	"errors"
	"io"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/transform"
)

// Decodable reports whether Decode knows the part's transfer encoding. A container isn't encoded
// itself, only its parts are (RFC 2045 §6.4).
func (p *Part) Decodable() bool {
	return p.Kind != Leaf || isIdentityEncoding(p.Encoding) || p.Encoding == "base64" || p.Encoding == "quoted-printable" || isUUEncoding(p.Encoding)
}

// Decode returns the content of the part without its transfer encoding. r must read the part's
// body. Broken base64, quoted-printable and uuencode are decoded as far as possible; the only
// errors are r's. Memory use is limited.
func (p *Part) Decode(r io.Reader) io.Reader {
	switch {
	case p.Encoding == "base64":
		return &base64Reader{r: r}
	case p.Encoding == "quoted-printable":
		return &qpReader{r: bufio.NewReader(r)}
	case isUUEncoding(p.Encoding):
		return &uuReader{r: bufio.NewReader(r)}
	}
	return r
}

// Text returns the first limit bytes of the part's content as UTF-8. r must read the part's body.
// Invalid characters become U+FFFD.
func (p *Part) Text(r io.Reader, limit int64) io.Reader {
	// A character has at least a quarter as many bytes as in UTF-8.
	r = io.LimitReader(p.Decode(r), 4*limit)
	t := charsetDecoder(p.Param("charset"))
	if t == nil {
		t = &lenientDecoder{}
	}
	r = transform.NewReader(r, t)
	return io.LimitReader(r, limit)
}

// byteOrderMark is at the start of some texts and has no meaning in UTF-8.
const byteOrderMark = '\uFEFF'

// lenientDecoder copies UTF-8 without a byte order mark at its start, and decodes any other byte as
// windows-1252.
type lenientDecoder struct{ begun bool }

// Reset implements transform.Transformer.
func (u *lenientDecoder) Reset() { u.begun = false }

// Transform implements transform.Transformer.
func (u *lenientDecoder) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		if !atEOF && !utf8.FullRune(src[nSrc:]) {
			return nDst, nSrc, transform.ErrShortSrc
		}
		r, size := utf8.DecodeRune(src[nSrc:])
		if r == utf8.RuneError && size == 1 {
			r = charmap.Windows1252.DecodeByte(src[nSrc])
		}
		if !u.begun && r == byteOrderMark {
			u.begun = true
			nSrc += size
			continue
		}
		if nDst+utf8.RuneLen(r) > len(dst) {
			return nDst, nSrc, transform.ErrShortDst
		}
		u.begun = true
		nDst += utf8.EncodeRune(dst[nDst:], r)
		nSrc += size
	}
	return nDst, nSrc, nil
}

// base64Reader decodes base64 and skips other characters. Padding ends a piece, and another may
// follow.
type base64Reader struct {
	r    io.Reader
	err  error
	acc  uint32 // its last bits bits are not written yet
	bits uint
	in   [4096]byte
	buf  [3076]byte
	out  []byte
}

// Read implements io.Reader.
func (b *base64Reader) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		var n int
		n, b.err = b.r.Read(b.in[:])
		b.out = b.buf[:0]
		for _, c := range b.in[:n] {
			v := base64Value(c)
			if v < 0 {
				if c == '=' {
					b.bits = 0
				}
				continue
			}
			b.acc = b.acc<<6 | uint32(v)
			if b.bits += 6; b.bits >= 8 {
				b.bits -= 8
				b.out = append(b.out, byte(b.acc>>b.bits))
			}
		}
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}

// base64Value returns the six bits of c, or -1.
func base64Value(c byte) int {
	switch {
	case c >= 'A' && c <= 'Z':
		return int(c - 'A')
	case c >= 'a' && c <= 'z':
		return int(c-'a') + 26
	case c >= '0' && c <= '9':
		return int(c-'0') + 52
	case c == '+':
		return 62
	case c == '/':
		return 63
	}
	return -1
}

// qpReader decodes quoted-printable (RFC 2045 §6.7). It drops white space before a line end, and
// leaves a broken escape as it is.
type qpReader struct {
	r   *bufio.Reader
	buf []byte
	out []byte // unread part of buf
	err error
	gap []byte // white space that is kept only if the line continues
}

// Read implements io.Reader.
func (q *qpReader) Read(p []byte) (int, error) {
	for len(q.out) == 0 {
		if q.err != nil {
			return 0, q.err
		}
		var piece []byte
		piece, q.err = q.r.ReadSlice('\n')
		if errors.Is(q.err, bufio.ErrBufferFull) {
			q.err = nil
			piece = q.extendPastEscape(piece)
		}
		q.decode(piece)
	}
	n := copy(p, q.out)
	q.out = q.out[n:]
	return n, nil
}

// extendPastEscape reads more if an escape or a line end would be split.
func (q *qpReader) extendPastEscape(piece []byte) []byte {
	for range 3 {
		n := len(piece)
		if piece[n-1] != '=' && piece[n-2] != '=' && piece[n-1] != '\r' {
			break
		}
		c, err := q.r.ReadByte()
		if err != nil {
			q.err = err
			break
		}
		piece = append(piece[:n:n], c)
	}
	return piece
}

// decode decodes a line, or a piece of a long line, into q.out.
func (q *qpReader) decode(line []byte) {
	out := q.buf[:0]
	defer func() { q.out, q.buf = out, out }()
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == ' ' || c == '\t':
			if len(q.gap) < maxLineLength {
				q.gap = append(q.gap, c)
				continue
			}
		case c == '\n' || c == '\r' && i+1 < len(line) && line[i+1] == '\n':
			q.gap = q.gap[:0]
		case c == '=' && isSoftBreak(line[i+1:]):
			out = append(out, q.gap...)
			q.gap = q.gap[:0]
			return
		case c == '=' && i+2 < len(line) && hexValue(line[i+1]) >= 0 && hexValue(line[i+2]) >= 0:
			c = byte(hexValue(line[i+1])<<4 | hexValue(line[i+2]))
			i += 2
		}
		if len(q.gap) > 0 {
			out = append(out, q.gap...)
			q.gap = q.gap[:0]
		}
		out = append(out, c)
	}
}

// isSoftBreak reports whether only white space and a line end follow a "=".
func isSoftBreak(rest []byte) bool {
	for _, c := range rest {
		if !isSpace(c) {
			return false
		}
	}
	return true
}
