// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"net/http"

	"github.com/mailstead/mailstead/internal/fault"
)

// still returns the fault with which the key of a request has ended since it was
// identified. That nobody can tell is none.
func (a *API) still(r *http.Request) error {
	if _, err := a.identify(r); keyEnded(err) {
		return err
	}
	return nil
}

func keyEnded(err error) bool { return fault.Is(err, fault.Unknown) || fault.Is(err, fault.Denied) }

// arrivingBody is a request's body, which may come for minutes, or hours: it breaks
// off when the key ends.
type arrivingBody struct {
	io.ReadCloser
	still func() error
}

// Read is that of io.Reader.
func (b arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if ended := b.still(); ended != nil {
		return 0, ended
	}
	return n, err
}

// leavingAnswer is an answer of any length: it breaks off when the key ends. Of HEAD,
// for which nothing is sent and so nobody waits, it ends once the header is there,
// with http.ErrBodyNotAllowed.
type leavingAnswer struct {
	io.Writer
	api   *API
	r     *http.Request
	begun bool
}

// Write is that of io.Writer.
func (l *leavingAnswer) Write(p []byte) (int, error) {
	if l.begun && l.r.Method == http.MethodHead {
		return 0, http.ErrBodyNotAllowed
	}
	l.begun = true
	if err := l.api.still(l.r); err != nil {
		return 0, err
	}
	return l.Writer.Write(p)
}
