// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"io"
)

// crlfReader turns each LF that has no CR before it into CRLF.
type crlfReader struct {
	r        io.Reader
	in       []byte
	buf      []byte
	buffered []byte // unread part of buf
	last     byte
	err      error
}

func newCRLFReader(r io.Reader) io.Reader { return &crlfReader{r: r, in: make([]byte, 16<<10)} }

// Read implements io.Reader.
func (c *crlfReader) Read(p []byte) (int, error) {
	for len(c.buffered) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		var n int
		n, c.err = c.r.Read(c.in)
		c.buf = c.buf[:0]
		for b := c.in[:n]; len(b) > 0; {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				c.buf = append(c.buf, b...)
				c.last = b[len(b)-1]
				break
			}
			if i > 0 {
				c.last = b[i-1]
			}
			if c.buf = append(c.buf, b[:i]...); c.last != '\r' {
				c.buf = append(c.buf, '\r')
			}
			c.buf = append(c.buf, '\n')
			c.last = '\n'
			b = b[i+1:]
		}
		c.buffered = c.buf
	}
	n := copy(p, c.buffered)
	c.buffered = c.buffered[n:]
	return n, nil
}

// lfWriter turns each CRLF into LF.
type lfWriter struct {
	w         io.Writer
	pendingCR bool // a CR waits for the next byte
}

// Write implements io.Writer.
func (l *lfWriter) Write(p []byte) (int, error) {
	n := len(p)
	if l.pendingCR && n > 0 {
		l.pendingCR = false
		if p[0] != '\n' {
			if _, err := l.w.Write([]byte{'\r'}); err != nil {
				return 0, err
			}
		}
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\r')
		if i < 0 {
			_, err := l.w.Write(p)
			return n, err
		}
		end := i
		switch {
		case i+1 == len(p):
			l.pendingCR = true
		case p[i+1] != '\n':
			end = i + 1
		}
		if _, err := l.w.Write(p[:end]); err != nil {
			return 0, err
		}
		p = p[i+1:]
	}
	return n, nil
}

// flush writes a final CR.
func (l *lfWriter) flush() error {
	if !l.pendingCR {
		return nil
	}
	l.pendingCR = false
	_, err := l.w.Write([]byte{'\r'})
	return err
}
