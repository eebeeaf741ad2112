// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"bytes"
	"errors"
	"io"
)

// dotReader reads the message after DATA up to CR LF . CR LF. Nothing else ends it, neither a bare
// LF nor a bare CR, which SMTP smuggling exploits on less strict servers. It removes doubled
// leading dots (RFC 5321 §4.5.2).
type dotReader struct {
	c         *conn
	lineStart bool // at the beginning, or after CR LF
	afterCR   bool // whether the last octet was CR
	err       error
}

// Read implements io.Reader.
func (d *dotReader) Read(p []byte) (n int, err error) {
	for n == 0 && len(p) > 0 {
		if d.err != nil {
			return 0, d.err
		}
		if d.lineStart {
			d.err = d.readLineStart()
			if d.err != nil {
				return 0, d.err
			}
		}
		if d.err = d.c.setBlockDeadline(); d.err != nil {
			return 0, d.err
		}
		if _, err := d.c.br.Peek(1); err != nil {
			d.err = unexpectedEOF(err)
			return 0, d.err
		}
		n = d.copyBuffered(p)
	}
	return n, nil
}

// copyBuffered copies buffered octets into p, up to the next line that begins with a dot.
func (d *dotReader) copyBuffered(p []byte) int {
	buf, _ := d.c.br.Peek(d.c.br.Buffered())
	buf = buf[:min(len(buf), len(p))]
	end := 0
	for end < len(buf) {
		if d.lineStart {
			if buf[end] == '.' {
				break
			}
			d.lineStart = false
		}
		i := bytes.IndexByte(buf[end:], '\n')
		if i < 0 {
			d.afterCR = buf[len(buf)-1] == '\r'
			end = len(buf)
			break
		}
		d.lineStart = i > 0 && buf[end+i-1] == '\r' || i == 0 && d.afterCR
		d.afterCR = false
		end += i + 1
	}
	n := copy(p, buf[:end])
	_, _ = d.c.br.Discard(n)
	return n
}

// readLineStart handles a dot at the start of a line. It returns io.EOF at the end of the message.
func (d *dotReader) readLineStart() error {
	for want := 1; want <= 3; want++ {
		if d.c.br.Buffered() < want {
			if err := d.setDeadline(); err != nil {
				return err
			}
		}
		b, err := d.c.br.Peek(want)
		if err != nil {
			return unexpectedEOF(err)
		}
		if b[want-1] == ".\r\n"[want-1] {
			continue
		}
		if want > 1 {
			_, err = d.c.br.Discard(1)
		}
		d.lineStart, d.afterCR = false, false
		return err
	}
	_, _ = d.c.br.Discard(3)
	return io.EOF
}

func (d *dotReader) setDeadline() error {
	if err := d.c.flush(); err != nil {
		return err
	}
	return d.c.setReadDeadline(blockTimeout)
}

// errTooMuchData closes the connection of a client that keeps sending a rejected message.
var errTooMuchData = errors.New("far too much was sent")

func (d *dotReader) drain() error {
	limit := 2*d.c.srv.maxSize() + 1<<20
	n, err := io.CopyBuffer(io.Discard, io.LimitReader(d, limit), make([]byte, readBufferSize))
	if err == nil && n == limit {
		err = errTooMuchData
	}
	return err
}
