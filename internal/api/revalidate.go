// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"net/http"

	"github.com/mailstead/mailstead/internal/web"
)

// revalidateKey returns a fault if a request's key has been revoked since it was identified. If the
// check itself fails, the key counts as valid.
func (a *API) revalidateKey(r *http.Request) error {
	if _, err := a.identify(r); web.IsAuthError(err) {
		return err
	}
	return nil
}

// revalidatingBody is a request body, which may take minutes or hours to arrive. Reading fails once
// the key is revoked.
type revalidatingBody struct {
	io.ReadCloser
	revalidate func() error
}

// Read implements io.Reader.
func (b revalidatingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if ended := b.revalidate(); ended != nil {
		return 0, ended
	}
	return n, err
}

// revalidatingWriter writes a response of any length. Writing fails once the key is revoked. For
// HEAD, it fails with http.ErrBodyNotAllowed after the header, since nobody waits for a body.
type revalidatingWriter struct {
	io.Writer
	api     *API
	r       *http.Request
	started bool
}

// Write implements io.Writer.
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
