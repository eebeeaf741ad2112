// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"io"
)

// crlf reads on with CRLF for every LF that has no CR before it.
type crlf struct {
	r    io.Reader
	in   []byte
	buf  []byte
	out  []byte // what of buf is still to be read
	last byte
	err  error
}

func withCRLF(r io.Reader) io.Reader { return &crlf{r: r, in: make([]byte, 16<<10)} }

// Read is that of io.Reader.
func (c *crlf) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
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
		c.out = c.buf
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

// lf writes a text on with LF for every CRLF.
type lf struct {
	w  io.Writer
	cr bool // a CR waits for what comes after it
}

// Write is that of io.Writer.
func (l *lf) Write(p []byte) (int, error) {
	n := len(p)
	if l.cr && n > 0 {
		l.cr = false
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
			l.cr = true
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

// end writes a CR that nothing came after.
func (l *lf) end() error {
	if !l.cr {
		return nil
	}
	l.cr = false
	_, err := l.w.Write([]byte{'\r'})
	return err
}
