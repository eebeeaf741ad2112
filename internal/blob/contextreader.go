// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"io"
)

// ContextReader reads from r until ctx ends, whose error it returns then.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read is that of io.Reader.
func (u contextReader) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
