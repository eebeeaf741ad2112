// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"io"
)

const (
	// fragmentSize is how much of a line is looked at together, in bytes.
	fragmentSize = 32 << 10
	// window's buffer has this size unless more is asked for.
	bufferSize = 128 << 10
)

// lineReader reads a stream by lines, and ahead as far as it is asked to. What it
// returns is there until it is asked again.
type lineReader struct {
	src    io.Reader
	buf    []byte
	pos    int   // what is before it was taken
	offset int64 // how many bytes were taken
	err    error // of src, once all before it is in buf
}

// peek returns what is not taken yet: n bytes at least, unless the stream ends
// before.
func (w *lineReader) peek(n int) []byte {
	if len(w.buf)-w.pos < n && w.err == nil {
		w.fill(n)
	}
	return w.buf[w.pos:]
}

func (w *lineReader) fill(n int) {
	switch {
	case cap(w.buf)-w.pos >= n: // there is room behind
	case cap(w.buf) >= n+bufferSize/2:
		w.buf, w.pos = w.buf[:copy(w.buf, w.buf[w.pos:])], 0
	default: // more, so that it is not moved for every line
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

// peekLine returns the line that begins so many bytes ahead, with its end, or as
// much of it as a fragment has; nothing at the end of the stream.
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

// discard takes so many bytes of what is ahead.
func (w *lineReader) discard(n int) {
	w.pos += n
	w.offset += int64(n)
}

// readErr is the error that ended the stream; nil for its proper end.
func (w *lineReader) readErr() error {
	if w.err == io.EOF { //nolint:errorlint // what io.Reader promises
		return nil
	}
	return w.err
}
