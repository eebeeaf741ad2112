// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
)

type readOnlyKey struct{}

// ErrReadOnly is the error of Tx, Exec and Write under the context of WithReadOnly.
var ErrReadOnly = errors.New("the context does not let anything be written")

// WithReadOnly returns a context under which nothing is written: for finding out what is
// wrong with a change without making it.
func WithReadOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, readOnlyKey{}, true)
}

// IsReadOnly reports whether a context is that of WithReadOnly.
func IsReadOnly(ctx context.Context) bool { return ctx.Value(readOnlyKey{}) != nil }

// checkWritable returns why nothing may be written under a context.
func checkWritable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if IsReadOnly(ctx) {
		return ErrReadOnly
	}
	return nil
}
