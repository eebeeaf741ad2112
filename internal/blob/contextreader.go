// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"io"
)

// ContextReader returns a reader of r that returns ctx's error once ctx has ended.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u contextReader) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
