// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"slices"
	"strings"
)

// headerEnd returns the offset of the empty line after the header, or -1.
func headerEnd(msg []byte) int {
	end, _ := headerEndAfter(msg, 0)
	return end
}

// headerEndAfter is headerEnd, starting at a line that begins at at. Without an empty line it
// returns -1 and the start of the last line.
func headerEndAfter(msg []byte, at int) (end, last int) {
	for {
		lf := bytes.IndexByte(msg[at:], '\n')
		if lf < 0 {
			return -1, at
		}
		line := msg[at : at+lf]
		if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
			return at, at
		}
		at += lf + 1
	}
}

// splitHeader splits a message at its empty line. Without one, all of it is header.
func splitHeader(msg []byte) (header, body []byte) {
	end := headerEnd(msg)
	if end < 0 {
		return msg, nil
	}
	return msg[:end], msg[end+bytes.IndexByte(msg[end:], '\n')+1:]
}

// selectFields returns the names for h= and the canonical text of those fields, in the order of h=.
// If a name occurs more than once, the last field comes first (RFC 6376 section 5.4.2). If the
// header has more than maxSignedFields of them, it returns more than maxSignedFields names.
func selectFields(header []byte, wanted []signedField) (names []string, text []byte) {
	found := make([][][]byte, len(wanted))
	for n := 0; len(header) > 0 && n <= maxSignedFields; {
		var field []byte
		field, header = cutField(header)
		colon := bytes.IndexByte(field, ':')
		if colon <= 0 {
			continue
		}
		name := bytes.TrimRight(field[:colon], " \t")
		for i := range wanted {
			if len(wanted[i].name) == len(name) && strings.EqualFold(wanted[i].name, string(name)) {
				found[i] = append(found[i], field)
				n++
				break
			}
		}
	}
	names = make([]string, 0, len(wanted))
	text = make([]byte, 0, 1024)
	for i, w := range wanted {
		for j := len(found[i]) - 1; j >= 0; j-- {
			names = append(names, w.name)
			text = appendRelaxed(text, found[i][j])
		}
		if w.oversign || w.oversignPresent && len(found[i]) > 0 {
			names = append(names, w.name)
		}
	}
	return names, text
}

// cutField splits off the first field with its continuation lines.
func cutField(header []byte) (field, rest []byte) {
	for at := 0; ; {
		lf := bytes.IndexByte(header[at:], '\n')
		if lf < 0 {
			return header, nil
		}
		at += lf + 1
		if at == len(header) || header[at] != ' ' && header[at] != '\t' {
			return header[:at], header[at:]
		}
	}
}

// appendRelaxed appends a field in relaxed form (RFC 6376 section 3.4.2). The field must have a
// colon.
func appendRelaxed(out, field []byte) []byte {
	colon := bytes.IndexByte(field, ':')
	out = slices.Grow(out, len(field)+len("\r\n"))
	for _, c := range bytes.TrimRight(field[:colon], " \t") {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		out = append(out, c)
	}
	out = append(out, ':')
	space, begun := false, false
	for _, c := range field[colon+1:] {
		switch c {
		case ' ', '\t':
			space = true
		case '\r', '\n':
		default:
			if space && begun {
				out = append(out, ' ')
			}
			space, begun = false, true
			out = append(out, c)
		}
	}
	return append(out, '\r', '\n')
}

// relaxedHash hashes a body in relaxed form (RFC 6376 section 3.4.4). It reduces white space to one
// space, and removes it at line ends, along with empty lines at the end.
type relaxedHash struct {
	h            hash.Hash
	buf          []byte
	emptyLines   int64 // empty lines that are written only if more follows
	pendingSpace bool
	nonEmpty     bool // whether the current line has content
	cr           bool // whether the last byte was a CR
}

func (b *relaxedHash) reset() {
	*b = relaxedHash{h: sha256.New(), buf: make([]byte, 0, 4<<10)}
}

// Write hashes the next bytes of the body.
func (b *relaxedHash) Write(p []byte) (int, error) {
	b.write(p)
	return len(p), nil
}

func (b *relaxedHash) write(p []byte) {
	for i := 0; i < len(p); {
		switch c := p[i]; c {
		case '\n':
			if !b.cr {
				b.endLine()
			}
			b.cr = false
			i++
		case '\r':
			b.endLine()
			b.cr = true
			i++
		case ' ', '\t':
			b.pendingSpace, b.cr = true, false
			i++
		default:
			n := i + 1 // single spaces between words stay unchanged
			for n < len(p) && (isWordByte(p[n]) || p[n] == ' ' && n+1 < len(p) && isWordByte(p[n+1])) {
				n++
			}
			b.writeWord(p[i:n])
			i = n
		}
	}
}

func isWordByte(c byte) bool { return c > ' ' || c < ' ' && c != '\t' && c != '\r' && c != '\n' }

func (b *relaxedHash) writeWord(w []byte) {
	for ; b.emptyLines > 0; b.emptyLines-- {
		b.put("\r\n")
	}
	if b.pendingSpace {
		b.put(" ")
	}
	b.pendingSpace, b.cr, b.nonEmpty = false, false, true
	if len(w) > cap(b.buf)-len(b.buf) {
		b.flush()
		if len(w) >= cap(b.buf) {
			_, _ = b.h.Write(w)
			return
		}
	}
	b.buf = append(b.buf, w...)
}

func (b *relaxedHash) put(s string) {
	if len(s) > cap(b.buf)-len(b.buf) {
		b.flush()
	}
	b.buf = append(b.buf, s...)
}

func (b *relaxedHash) flush() {
	_, _ = b.h.Write(b.buf)
	b.buf = b.buf[:0]
}

func (b *relaxedHash) endLine() {
	b.pendingSpace = false
	if !b.nonEmpty {
		b.emptyLines++
		return
	}
	b.put("\r\n")
	b.nonEmpty = false
}

func (b *relaxedHash) sum() (digest [sha256.Size]byte) {
	if b.nonEmpty {
		b.endLine()
	}
	b.flush()
	b.h.Sum(digest[:0])
	return digest
}
