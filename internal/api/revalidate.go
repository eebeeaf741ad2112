// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"net/http"

	"github.com/mailstead/mailstead/internal/fault"
)

// revalidateKey returns the fault with which the key of a request has ended since it was
// identified. That nobody can tell is none.
func (a *API) revalidateKey(r *http.Request) error {
	if _, err := a.identify(r); isAuthError(err) {
		return err
	}
	return nil
}

func isAuthError(err error) bool {
	return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Denied)
}

// revalidatingBody is a request's body, which may come for minutes, or hours: it breaks
// off when the key ends.
type revalidatingBody struct {
	io.ReadCloser
	revalidate func() error
}

// Read is that of io.Reader.
func (b revalidatingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if ended := b.revalidate(); ended != nil {
		return 0, ended
	}
	return n, err
}

// revalidatingWriter is an answer of any length: it breaks off when the key ends. Of HEAD,
// for which nothing is sent and so nobody waits, it ends once the header is there,
// with http.ErrBodyNotAllowed.
type revalidatingWriter struct {
	io.Writer
	api     *API
	r       *http.Request
	started bool
}

// Write is that of io.Writer.
func (l *revalidatingWriter) Write(p []byte) (int, error) {
	if l.started && l.r.Method == http.MethodHead {
		return 0, http.ErrBodyNotAllowed
	}
	l.started = true
	if err := l.api.revalidateKey(l.r); err != nil {
		return 0, err
	}
	return l.Writer.Write(p)
}
