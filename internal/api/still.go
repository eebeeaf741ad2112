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

// leavingAnswer is an answer of any length: it breaks off when the key ends.
type leavingAnswer struct {
	io.Writer
	still func() error
}

// Write is that of io.Writer.
func (l leavingAnswer) Write(p []byte) (int, error) {
	if err := l.still(); err != nil {
		return 0, err
	}
	return l.Writer.Write(p)
}
