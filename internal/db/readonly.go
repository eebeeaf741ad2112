// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
)

type readOnlyKey struct{}

// ErrReadOnly is the error of Tx, Exec and Write under the context of WithReadOnly.
var ErrReadOnly = errors.New("the context does not let anything be written")

// WithReadOnly returns a context under which nothing can be written. It serves to validate a
// change without making it.
func WithReadOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, readOnlyKey{}, true)
}

// IsReadOnly reports whether ctx comes from WithReadOnly.
func IsReadOnly(ctx context.Context) bool { return ctx.Value(readOnlyKey{}) != nil }

// checkWritable returns an error if nothing may be written under ctx.
func checkWritable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if IsReadOnly(ctx) {
		return ErrReadOnly
	}
	return nil
}
