// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"sync/atomic"
)

// CommitGuard is a statement that the first commit under a context contains, whatever that commit
// is for. It decides in the same commit as a change whether the change may happen. See
// WithCommitGuard.
type CommitGuard struct {
	// Statement returns the statement. It is called again when the transaction runs again, and for
	// transactions that begin before the first one has committed.
	Statement func() Statement
	// Declined is the error of the transaction if the statement changes no row.
	Declined error

	committed atomic.Bool
}

// Committed reports whether a commit contained the statement. It is false after ErrCommitUnknown.
func (g *CommitGuard) Committed() bool { return g.committed.Load() }

type commitGuardKey struct{}

// WithCommitGuard returns a context whose first commit, by Tx, Exec, Run or Write, contains the
// guard's statement. A nil guard removes the context's guard.
func WithCommitGuard(ctx context.Context, g *CommitGuard) context.Context {
	return context.WithValue(ctx, commitGuardKey{}, g)
}

// commitGuardFrom returns the guard of a context, or nil if there is none or it was committed.
func commitGuardFrom(ctx context.Context) *CommitGuard {
	g, _ := ctx.Value(commitGuardKey{}).(*CommitGuard)
	if g == nil || g.Committed() {
		return nil
	}
	return g
}

// before returns f with the guard's statement before it, as a function for runTx.
func (g *CommitGuard) before(ctx context.Context, f func(tx *Tx) error) func(tx *Tx) error {
	return func(tx *Tx) error {
		if err := tx.ExecOrFail(ctx, g.Statement(), g.Declined); err != nil {
			return err
		}
		tx.AfterCommit(func() { g.committed.Store(true) })
		return f(tx)
	}
}

// combine returns a mutation that consists of the guard and job.
func (g *CommitGuard) combine(job *Mutation) *Mutation {
	return Combine(&Mutation{
		Guard:       func(b *Batch) { b.Queue(g.Statement()).OrFail(g.Declined) },
		AfterCommit: func() { g.committed.Store(true) },
	}, job)
}
