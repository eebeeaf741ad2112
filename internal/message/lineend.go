// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"fmt"
	"io"
)

// LineEndError is a CR without LF or an LF without CR (RFC 5321 §2.3.8).
type LineEndError struct{ Offset int64 }

// Error says where it is.
func (e *LineEndError) Error() string {
	return fmt.Sprintf("bare CR or LF at octet %d", e.Offset)
}

// RejectBareLineEnds passes r on as long as its line ends are all CRLF. At a bare CR
// or LF it gives a *LineEndError, after all that stood before it: what another
// server could read as the end of the mail must not come in.
func RejectBareLineEnds(r io.Reader) io.Reader { return &bareLineEndReader{r: r} }

type bareLineEndReader struct {
	r      io.Reader
	offset int64
	cr     bool // the last octet was CR
	err    error
}

// Read is that of io.Reader.
func (s *bareLineEndReader) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if at := s.findBare(p[:n]); at >= 0 {
		s.err = &LineEndError{s.offset + int64(at)}
		return at, s.err
	}
	s.offset += int64(n)
	if err == io.EOF && s.cr {
		err = &LineEndError{s.offset - 1}
	}
	s.err = err
	return n, err
}

// findBare returns where a bare CR or LF shows in the next octets b, or -1. A bare
// CR shows at the octet after it.
func (s *bareLineEndReader) findBare(b []byte) int {
	for at := 0; at < len(b); {
		line := b[at:]
		if s.cr {
			if line[0] != '\n' {
				return at
			}
			s.cr = false
			at++
			continue
		}
		i := bytes.IndexByte(line, '\n')
		if i < 0 {
			i = len(line)
		}
		if j := bytes.IndexByte(line[:i], '\r'); j >= 0 {
			s.cr = true
			at += j + 1
			continue
		}
		if i < len(line) {
			return at + i
		}
		return -1
	}
	return -1
}

// NormalizeLineEnds passes r on with every bare CR and bare LF made CRLF. It is for
// mail from its author, before anything signs or stores it.
func NormalizeLineEnds(r io.Reader) io.Reader {
	return &lineEndNormalizer{r: r, in: make([]byte, 8<<10)}
}

type lineEndNormalizer struct {
	r   io.Reader
	in  []byte
	buf []byte
	out []byte // what of buf is still to be read
	cr  bool   // a CR was read whose fate the next octet decides
	err error
}

// Read is that of io.Reader.
func (m *lineEndNormalizer) Read(p []byte) (int, error) {
	for len(m.out) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		var n int
		n, m.err = m.r.Read(m.in)
		m.normalize(m.in[:n])
	}
	n := copy(p, m.out)
	m.out = m.out[n:]
	return n, nil
}

// WriteTo is that of io.WriterTo: it needs no buffer of the caller's.
func (m *lineEndNormalizer) WriteTo(w io.Writer) (written int64, err error) {
	for {
		n, err := w.Write(m.out)
		written += int64(n)
		m.out = m.out[n:]
		if err != nil {
			return written, err
		}
		if m.err == io.EOF {
			return written, nil
		}
		if m.err != nil {
			return written, m.err
		}
		n, m.err = m.r.Read(m.in)
		m.normalize(m.in[:n])
	}
}

func (m *lineEndNormalizer) normalize(b []byte) {
	if need := len(b) + len(b)/32 + 4; cap(m.buf) < need { // most of it is whole lines
		m.buf = make([]byte, 0, need)
	}
	out := m.buf[:0]
	for len(b) > 0 {
		if m.cr {
			m.cr = false
			out = append(out, "\r\n"...)
			if b[0] == '\n' {
				b = b[1:]
			}
			continue
		}
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			out = append(out, b...)
			break
		}
		out = append(out, b[:i]...)
		if b[i] == '\r' {
			m.cr = true
		} else {
			out = append(out, "\r\n"...)
		}
		b = b[i+1:]
	}
	if m.cr && m.err != nil {
		m.cr = false
		out = append(out, "\r\n"...)
	}
	m.buf, m.out = out, out
}

// MaskNUL passes r on with every NUL made octet 128: an IMAP literal has no
// place for NUL (RFC 3501 §9, CHAR8), and sizes must not change.
func MaskNUL(r io.Reader) io.Reader { return nulMasker{r} }

type nulMasker struct{ r io.Reader }

// Read is that of io.Reader.
func (m nulMasker) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	for b := p[:n]; ; {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return n, err
		}
		b[i] = 0x80
		b = b[i+1:]
	}
}
