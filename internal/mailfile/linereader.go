// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"io"
)

const (
	// fragmentSize is the size of the part of a line that is examined at once, in bytes.
	fragmentSize = 32 << 10
	// bufferSize is the size of lineReader's buffer unless a caller needs more, in bytes.
	bufferSize = 128 << 10
)

// lineReader reads a stream by lines, with as much lookahead as requested. Its results are valid
// until the next call.
type lineReader struct {
	src    io.Reader
	buf    []byte
	pos    int   // data before it was consumed
	offset int64 // number of bytes consumed
	err    error // error of src, once buf has all data before it
}

// peek returns unconsumed data: at least n bytes unless the stream ends before.
func (w *lineReader) peek(n int) []byte {
	if len(w.buf)-w.pos < n && w.err == nil {
		w.fill(n)
	}
	return w.buf[w.pos:]
}

func (w *lineReader) fill(n int) {
	switch {
	case cap(w.buf)-w.pos >= n: // there is space after the data
	case cap(w.buf) >= n+bufferSize/2:
		w.buf, w.pos = w.buf[:copy(w.buf, w.buf[w.pos:])], 0
	default: // twice the size, so that data is not moved for every line
		grown := make([]byte, len(w.buf)-w.pos, n+bufferSize)
		copy(grown, w.buf[w.pos:])
		w.buf, w.pos = grown, 0
	}
	for idle := 0; len(w.buf)-w.pos < n && w.err == nil; {
		m, err := w.src.Read(w.buf[len(w.buf):cap(w.buf)])
		w.buf, w.err = w.buf[:len(w.buf)+m], err
		if idle++; m > 0 {
			idle = 0
		}
		if idle > 100 {
			w.err = io.ErrNoProgress
		}
	}
}

// peekLine returns the line that begins from bytes ahead, with its end, but at most a fragment of
// it; nothing at the end of the stream.
func (w *lineReader) peekLine(from int) []byte {
	for looked := 0; ; {
		b := w.buf[min(w.pos+from, len(w.buf)):]
		b = b[:min(len(b), fragmentSize)]
		if i := bytes.IndexByte(b[looked:], '\n'); i >= 0 {
			return b[:looked+i+1]
		}
		if len(b) == fragmentSize || w.err != nil {
			return b
		}
		looked = len(b)
		w.fill(from + len(b) + 1)
	}
}

// discard consumes n bytes.
func (w *lineReader) discard(n int) {
	w.pos += n
	w.offset += int64(n)
}

// readErr returns the error that ended the stream; nil at EOF.
func (w *lineReader) readErr() error {
	if w.err == io.EOF { //nolint:errorlint // what io.Reader promises
		return nil
	}
	return w.err
}
