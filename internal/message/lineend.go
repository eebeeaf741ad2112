// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"fmt"
	"io"
)

// LineEndError is a CR without LF or an LF without CR (RFC 5321 §2.3.8).
type LineEndError struct{ Offset int64 }

// Error returns the kind and position of the problem.
func (e *LineEndError) Error() string {
	return fmt.Sprintf("bare CR or LF at octet %d", e.Offset)
}

// RejectBareLineEnds returns a copy of r that fails at a bare CR or LF with a *LineEndError, after
// all bytes before it. Another server could take such a line end for the end of the mail.
func RejectBareLineEnds(r io.Reader) io.Reader { return &bareLineEndReader{r: r} }

type bareLineEndReader struct {
	r      io.Reader
	offset int64
	cr     bool // whether the last octet was CR
	err    error
}

// Read implements io.Reader.
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

// findBare returns the position of a bare CR or LF in the next octets b, or -1. A bare CR is
// detected at the octet after it.
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

// NormalizeLineEnds returns a copy of r with bare CR and LF as CRLF. Use it for mail from its
// author, before signing or storing.
func NormalizeLineEnds(r io.Reader) io.Reader {
	return &lineEndNormalizer{r: r, in: make([]byte, 8<<10)}
}

type lineEndNormalizer struct {
	r   io.Reader
	in  []byte
	buf []byte
	out []byte // unread part of buf
	cr  bool   // whether a CR was read, and the next octet decides what it means
	err error
}

// Read implements io.Reader.
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

// WriteTo implements io.WriterTo, without the caller's buffer.
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
	if need := len(b) + len(b)/32 + 4; cap(m.buf) < need { // most input has whole lines
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

// MaskNUL returns a copy of r with NUL replaced by octet 128: an IMAP literal must not contain NUL
// (RFC 3501 §9, CHAR8), and sizes must not change.
func MaskNUL(r io.Reader) io.Reader { return nulMasker{r} }

type nulMasker struct{ r io.Reader }

// Read implements io.Reader.
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
