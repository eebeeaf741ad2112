// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"io"
	"net/http"
	"time"
)

// A stream may take as long as it wants to, but not stand still: within stall
// it has to bring least bytes.
const (
	stallTimeout = time.Minute
	minProgress  = 16 << 10
)

// BodyReader reads a request's body of any length. A peer that stands still gets
// os.ErrDeadlineExceeded; what the service itself does between two Reads does
// not count.
type BodyReader struct {
	body       io.Reader
	controller *http.ResponseController
	timeout    time.Duration
	remaining  time.Duration
	received   int
}

// NewBodyReader makes a reader of r's body.
func NewBodyReader(w http.ResponseWriter, r *http.Request) *BodyReader {
	return &BodyReader{body: r.Body, controller: http.NewResponseController(w), timeout: stallTimeout, remaining: stallTimeout}
}

// Read is that of io.Reader.
func (a *BodyReader) Read(p []byte) (int, error) {
	begun := time.Now()
	_ = a.controller.SetReadDeadline(begun.Add(a.remaining)) // the server has a bound of its own, too
	n, err := a.body.Read(p)
	a.remaining -= time.Since(begun) // what the caller does between two Reads is its own affair
	if a.received += n; a.received >= minProgress {
		a.received, a.remaining = 0, a.timeout
	}
	return n, err
}

// Stop ends a Read that waits, and all later ones.
func (a *BodyReader) Stop() { _ = a.controller.SetReadDeadline(time.Unix(1, 0)) }

// Finish gives the answer time to be written. whole says that all of the body was
// read; otherwise what comes of it gets no more time.
func (a *BodyReader) Finish(whole bool) {
	_ = a.controller.SetWriteDeadline(time.Now().Add(stallTimeout))
	if whole {
		_ = a.controller.SetReadDeadline(time.Time{})
	}
}

// StreamWriter writes an answer of any length. Begin is called before its first
// byte, or by End if there is none.
type StreamWriter struct {
	OnBegin func()
	Begun   bool

	w          http.ResponseWriter
	controller *http.ResponseController
}

// NewStreamWriter makes a writer of w.
func NewStreamWriter(w http.ResponseWriter, begin func()) *StreamWriter {
	return &StreamWriter{OnBegin: begin, w: w, controller: http.NewResponseController(w)}
}

// Write is that of io.Writer. A client that reads nothing for a minute is given
// up.
func (l *StreamWriter) Write(p []byte) (int, error) {
	_ = l.controller.SetWriteDeadline(time.Now().Add(stallTimeout)) // the server has a bound of its own, too
	l.begin()
	return l.w.Write(p)
}

func (l *StreamWriter) begin() {
	if !l.Begun {
		l.Begun = true
		l.OnBegin()
	}
}

// Finish ends an answer that is whole.
func (l *StreamWriter) Finish() {
	_ = l.controller.SetWriteDeadline(time.Now().Add(stallTimeout))
	l.begin()
}
