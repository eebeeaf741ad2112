// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bytes"
	"io"
)

// dotWriter encodes a message for DATA. It doubles a dot at the start of a line (RFC 5321 section
// 4.5.2). It turns a bare CR or LF into CRLF, so that all hosts see the same line ends (section
// 2.3.8).
type dotWriter struct {
	w         io.Writer
	err       error // the first error of w
	n         int64 // bytes accepted by Write
	pendingCR bool  // whether the last byte was a CR, not yet written
	inLine    bool  // whether the current line is not empty
}

func (d *dotWriter) write(p []byte) {
	if d.err == nil && len(p) > 0 {
		_, d.err = d.w.Write(p)
	}
}

func (d *dotWriter) writeString(s string) {
	if d.err == nil {
		_, d.err = io.WriteString(d.w, s)
	}
}

// Write implements io.Writer.
func (d *dotWriter) Write(p []byte) (int, error) {
	whole := len(p)
	d.n += int64(whole)
	for len(p) > 0 && d.err == nil {
		if d.pendingCR {
			d.endLine()
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		if !d.inLine && p[0] == '.' {
			d.writeString(".")
		}
		p = d.writeLine(p)
	}
	if d.err != nil {
		return 0, d.err
	}
	return whole, nil
}

// writeLine writes up to and including the next line end, and returns the rest.
func (d *dotWriter) writeLine(p []byte) []byte {
	lf := bytes.IndexByte(p, '\n')
	line := p
	if lf >= 0 {
		line = p[:lf]
	}
	switch cr := bytes.IndexByte(line, '\r'); {
	case cr >= 0 && cr == lf-1:
		d.write(p[:lf+1])
		d.inLine = false
		return p[lf+1:]
	case cr >= 0:
		d.write(p[:cr])
		d.inLine = true
		d.pendingCR = true
		return p[cr+1:]
	case lf >= 0:
		d.write(line)
		d.endLine()
		return p[lf+1:]
	}
	d.write(p)
	d.inLine = true
	return nil
}

func (d *dotWriter) endLine() {
	d.writeString("\r\n")
	d.pendingCR, d.inLine = false, false
}

// finish ends the message with the final dot.
func (d *dotWriter) finish() error {
	if d.pendingCR || d.inLine {
		d.endLine()
	}
	d.writeString(".\r\n")
	return d.err
}
