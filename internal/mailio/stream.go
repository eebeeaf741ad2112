// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"io"
	"net/http"
	"time"
)

// A stream may take any time but must not stall: each period of stallTimeout must bring a minimum
// number of bytes.
const (
	stallTimeout = time.Minute
	minProgress  = 16 << 10
)

// RequestBodyReader reads a request body of any length. If the client stalls, Read returns
// os.ErrDeadlineExceeded. The service's own time between two Reads does not count.
type RequestBodyReader struct {
	body       io.Reader
	controller *http.ResponseController
	timeout    time.Duration
	remaining  time.Duration
	received   int
}

// NewRequestBodyReader returns a reader of r's body.
func NewRequestBodyReader(w http.ResponseWriter, r *http.Request) *RequestBodyReader {
	return &RequestBodyReader{body: r.Body, controller: http.NewResponseController(w), timeout: stallTimeout, remaining: stallTimeout}
}

// Read implements io.Reader.
func (a *RequestBodyReader) Read(p []byte) (int, error) {
	begun := time.Now()
	_ = a.controller.SetReadDeadline(begun.Add(a.remaining)) // the server has its own limit, too
	n, err := a.body.Read(p)
	a.remaining -= time.Since(begun) // the caller's time between two Reads does not count
	if a.received += n; a.received >= minProgress {
		a.received, a.remaining = 0, a.timeout
	}
	return n, err
}

// Stop interrupts a blocked Read and all later ones.
func (a *RequestBodyReader) Stop() { _ = a.controller.SetReadDeadline(time.Unix(1, 0)) }

// PrepareResponse extends the deadline for writing the response. whole reports whether the body was
// read completely; otherwise the rest of it gets no more time.
func (a *RequestBodyReader) PrepareResponse(whole bool) {
	_ = a.controller.SetWriteDeadline(time.Now().Add(stallTimeout))
	if whole {
		_ = a.controller.SetReadDeadline(time.Time{})
	}
}

// StreamWriter writes a response of any length. It calls OnBegin before the first byte, or in
// Finish if there is none.
type StreamWriter struct {
	OnBegin func()
	Begun   bool

	w          http.ResponseWriter
	controller *http.ResponseController
}

// NewStreamWriter returns a StreamWriter for w.
func NewStreamWriter(w http.ResponseWriter, begin func()) *StreamWriter {
	return &StreamWriter{OnBegin: begin, w: w, controller: http.NewResponseController(w)}
}

// Write implements io.Writer. It fails if the client reads nothing for a minute.
func (l *StreamWriter) Write(p []byte) (int, error) {
	_ = l.controller.SetWriteDeadline(time.Now().Add(stallTimeout)) // the server has its own limit, too
	l.begin()
	return l.w.Write(p)
}

func (l *StreamWriter) begin() {
	if !l.Begun {
		l.Begun = true
		l.OnBegin()
	}
}

// Finish ends a complete response.
func (l *StreamWriter) Finish() {
	_ = l.controller.SetWriteDeadline(time.Now().Add(stallTimeout))
	l.begin()
}
