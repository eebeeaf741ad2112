// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"io"
)

const (
	// fragment is how much of a line is looked at together, in bytes.
	fragment = 32 << 10
	// window's buffer has this size unless more is asked for.
	windowSize = 128 << 10
)

// window reads a stream by lines, and ahead as far as it is asked to. What it
// returns is there until it is asked again.
type window struct {
	src io.Reader
	buf []byte
	at  int   // what is before it was taken
	off int64 // how many bytes were taken
	err error // of src, once all before it is in buf
}

// ahead returns what is not taken yet: n bytes at least, unless the stream ends
// before.
func (w *window) ahead(n int) []byte {
	if len(w.buf)-w.at < n && w.err == nil {
		w.fill(n)
	}
	return w.buf[w.at:]
}

func (w *window) fill(n int) {
	switch {
	case cap(w.buf)-w.at >= n: // there is room behind
	case cap(w.buf) >= n+windowSize/2:
		w.buf, w.at = w.buf[:copy(w.buf, w.buf[w.at:])], 0
	default: // more, so that it is not moved for every line
		grown := make([]byte, len(w.buf)-w.at, n+windowSize)
		copy(grown, w.buf[w.at:])
		w.buf, w.at = grown, 0
	}
	for idle := 0; len(w.buf)-w.at < n && w.err == nil; {
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

// line returns the line that begins so many bytes ahead, with its end, or as
// much of it as a fragment has; nothing at the end of the stream.
func (w *window) line(from int) []byte {
	for looked := 0; ; {
		b := w.buf[min(w.at+from, len(w.buf)):]
		b = b[:min(len(b), fragment)]
		if i := bytes.IndexByte(b[looked:], '\n'); i >= 0 {
			return b[:looked+i+1]
		}
		if len(b) == fragment || w.err != nil {
			return b
		}
		looked = len(b)
		w.fill(from + len(b) + 1)
	}
}

// take takes so many bytes of what is ahead.
func (w *window) take(n int) {
	w.at += n
	w.off += int64(n)
}

// ended is the error that ended the stream; nil for its proper end.
func (w *window) ended() error {
	if w.err == io.EOF { //nolint:errorlint // what io.Reader promises
		return nil
	}
	return w.err
}
