// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// bufferSize is how much a Writer collects before it writes: a round number of
// full TLS records, and enough that 20,000 short rows take a dozen writes.
const bufferSize = 64 << 10

// ErrShortLiteral says that a literal's source ended before the size announced for
// it. What the client would read next is undefined: close the connection.
var ErrShortLiteral = errors.New("literal is shorter than announced")

// BufferPool lends write buffers to the Writers of a server, so that an idle
// connection holds none. The zero value is ready; share one among all.
type BufferPool struct{ pool sync.Pool }

func (p *BufferPool) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, bufferSize)
}

func (p *BufferPool) put(b []byte) {
	if cap(b) == bufferSize {
		b = b[:0]
		p.pool.Put(&b)
	}
}

// Writer writes answers to one client. It collects them and writes when its
// buffer is full or at Flush, which a session calls once per command. The
// first error stays: everything later is dropped and Flush returns it.
type Writer struct {
	// UTF8 says that mailbox names and strings go out in UTF-8 instead of
	// modified UTF-7 and literals (ENABLE UTF8=ACCEPT, IMAP4rev2).
	UTF8 bool

	w     io.Writer
	flush func() error // what w holds back; nil if it doesn't
	pool  *BufferPool
	buf   []byte // nil between commands
	err   error
}

// NewWriter returns a Writer to w, with its buffer from buffers.
func NewWriter(w io.Writer, buffers *BufferPool) *Writer {
	return &Writer{w: w, pool: buffers}
}

// Reset goes on with another stream (COMPRESS), and with flush for what that
// holds back. Flush first.
func (w *Writer) Reset(to io.Writer, flush func() error) { w.w, w.flush = to, flush }

// Flush writes what has been collected and gives the buffer back. It returns
// the first error since the Writer was made.
func (w *Writer) Flush() error {
	w.write()
	if w.flush != nil && w.err == nil {
		w.fail(w.flush())
	}
	if w.buf != nil {
		w.pool.put(w.buf)
		w.buf = nil
	}
	return w.err
}

// Err returns the first error since the Writer was made.
func (w *Writer) Err() error { return w.err }

func (w *Writer) fail(err error) {
	if w.err == nil && err != nil {
		w.err = err
	}
}

// write empties the buffer but keeps it.
func (w *Writer) write() {
	if len(w.buf) > 0 && w.err == nil {
		_, err := w.w.Write(w.buf)
		w.fail(err)
	}
	if cap(w.buf) > bufferSize {
		w.buf = nil // grown by one huge string
	}
	w.buf = w.buf[:0]
}

// reserve returns the buffer to append to, with some space left.
func (w *Writer) reserve() []byte {
	if len(w.buf) > bufferSize-1024 {
		w.write()
	}
	return w.buffer()
}

func (w *Writer) buffer() []byte {
	if w.buf == nil {
		w.buf = w.pool.get()
	}
	return w.buf
}

// Raw writes s as it is.
func (w *Writer) Raw(s string) *Writer {
	w.buf = append(w.reserve(), s...)
	return w
}

// RawBytes writes b as it is. It fills the buffer to its end, and no further.
func (w *Writer) RawBytes(b []byte) *Writer {
	if free := max(bufferSize-len(w.buf), 0); len(b) > free {
		w.buf = append(w.buffer(), b[:free]...)
		w.write()
		if b = b[free:]; len(b) > bufferSize {
			if w.err == nil {
				_, err := w.w.Write(b)
				w.fail(err)
			}
			return w
		}
	}
	w.buf = append(w.buffer(), b...)
	return w
}

// SP writes a space.
func (w *Writer) SP() *Writer {
	w.buf = append(w.reserve(), ' ')
	return w
}

// CRLF ends a line. It does not flush.
func (w *Writer) CRLF() *Writer {
	w.buf = append(w.reserve(), '\r', '\n')
	return w
}

// Number writes n in decimal.
func (w *Writer) Number(n uint64) *Writer {
	w.buf = strconv.AppendUint(w.reserve(), n, 10)
	return w
}

// String writes a string, quoted or as a literal.
func (w *Writer) String(s string) *Writer {
	w.buf = appendString(w.reserve(), s, w.UTF8)
	return w
}

// NString writes a string, or NIL if it is not there.
func (w *Writer) NString(s string, there bool) *Writer {
	if !there {
		return w.Raw("NIL")
	}
	return w.String(s)
}

// AString writes an atom if s can be one, else a string.
func (w *Writer) AString(s string) *Writer {
	if isAtom(s) {
		return w.Raw(s)
	}
	return w.String(s)
}

// Mailbox writes a mailbox name, given in UTF-8.
func (w *Writer) Mailbox(name string) *Writer {
	w.buf = appendMailbox(w.reserve(), name, w.UTF8)
	return w
}

// Flags writes a flag list.
func (w *Writer) Flags(f Flags) *Writer {
	w.buf = appendFlags(w.reserve(), f)
	return w
}

// DateTime writes a date-time in t's own zone.
func (w *Writer) DateTime(t time.Time) *Writer {
	w.buf = appendDateTime(w.reserve(), t)
	return w
}

// maxBufferedRanges is how many ranges of a set go into the buffer at once.
const maxBufferedRanges = 40

// Set writes a sequence set, which must not be empty.
func (w *Writer) Set(s Set) *Writer {
	for len(s) > maxBufferedRanges {
		w.buf = append(appendSet(w.reserve(), s[:maxBufferedRanges]), ',')
		s = s[maxBufferedRanges:]
	}
	w.buf = appendSet(w.reserve(), s)
	return w
}

// Literal writes a literal of size bytes from src. A source that ends early is
// ErrShortLiteral, what it has beyond size is left alone.
func (w *Writer) Literal(size int64, src io.Reader) *Writer {
	w.literalHeader(size)
	for size > 0 && w.err == nil {
		if len(w.buf) >= bufferSize {
			w.write()
		}
		b := w.buffer()
		n, err := src.Read(b[len(b):min(int64(cap(b)), int64(len(b))+size)])
		w.buf = b[:len(b)+n]
		size -= int64(n)
		if size > 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = ErrShortLiteral
			}
			w.fail(fmt.Errorf("writing a literal: %w", err))
		}
	}
	return w
}

// LiteralBytes writes b as a literal.
func (w *Writer) LiteralBytes(b []byte) *Writer {
	w.literalHeader(int64(len(b)))
	return w.RawBytes(b)
}

func (w *Writer) literalHeader(size int64) {
	b := append(w.reserve(), '{')
	b = strconv.AppendInt(b, size, 10)
	w.buf = append(b, "}\r\n"...)
}
