// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"io"
)

// Until reads from r until ctx ends, whose error it returns then.
func Until(ctx context.Context, r io.Reader) io.Reader { return until{ctx, r} }

type until struct {
	ctx context.Context
	r   io.Reader
}

// Read is that of io.Reader.
func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
