// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bufio"
	"bytes"
	"errors"
)

// isUUEncoding reports whether a transfer encoding means uuencode, which has no standard name.
func isUUEncoding(encoding string) bool {
	switch encoding {
	case "x-uuencode", "uuencode", "x-uue", "uue":
		return true
	}
	return false
}

// maxUULine is the maximum length of a uuencode line with its line end: 63 bytes of data and a
// checksum.
const maxUULine = 128

// uuReader decodes the uuencoded files in a text (POSIX.1, uuencode): the lines between "begin" and
// "end". It restores missing spaces at the end of a line.
type uuReader struct {
	r          *bufio.Reader
	inFile     bool // between begin and end
	inLongLine bool // skips the rest of a line that is too long
	out        []byte
	buf        [64]byte
}

// Read implements io.Reader.
func (u *uuReader) Read(p []byte) (int, error) {
	for len(u.out) == 0 {
		line, err := u.r.ReadSlice('\n')
		partial := errors.Is(err, bufio.ErrBufferFull)
		if !u.inLongLine && !partial && len(line) <= maxUULine {
			u.line(bytes.TrimRight(line, "\r\n"))
		}
		u.inLongLine = partial
		if err != nil && !partial && len(u.out) == 0 {
			return 0, err
		}
	}
	n := copy(p, u.out)
	u.out = u.out[n:]
	return n, nil
}

// line decodes a line into u.out.
func (u *uuReader) line(line []byte) {
	if !u.inFile {
		u.inFile = isUUBegin(line)
		return
	}
	if len(line) == 0 || string(bytes.TrimSpace(line)) == "end" {
		u.inFile = len(line) == 0
		return
	}
	value := func(at int) byte {
		if at >= len(line) || line[at] < ' ' || line[at] > '`' {
			return 0
		}
		return (line[at] - ' ') & 63
	}
	size := int(value(0))
	out := u.buf[:0]
	for at := 1; len(out) < size; at += 4 {
		a, b, c, d := value(at), value(at+1), value(at+2), value(at+3)
		out = append(out, a<<2|b>>4)
		if len(out) < size {
			out = append(out, b<<4|c>>2)
		}
		if len(out) < size {
			out = append(out, c<<6|d)
		}
	}
	u.out = out
}

// isUUBegin reports whether a line is "begin", a mode in octal digits, and a name.
func isUUBegin(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("begin "))
	mode, _, named := bytes.Cut(rest, []byte(" "))
	return ok && named && len(mode) >= 3 && len(bytes.Trim(mode, "01234567")) == 0
}
