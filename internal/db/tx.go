// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"fmt"
	"hash/fnv"
)

// Tx is an ordinary transaction.
type Tx struct {
	session     txSession
	failed      error // error of a statement: both engines then roll back
	afterCommit []func()
}

// Tx runs f in its own transaction and returns after the commit. After an error nothing was
// written, except for ErrCommitUnknown. f runs again when the database asks for it (BUSY, 40001,
// 40P01, a lost connection), so it must have no side effects except through AfterCommit. Once f
// has begun, ctx no longer interrupts it. Once a statement has failed, all later ones and the
// commit fail too.
func (d *DB) Tx(ctx context.Context, f func(tx *Tx) error) error {
	return runTx(ctx, d.tx, f)
}

// PriorityTx is Tx that does not queue behind ordinary transactions. It serves one caller at a time.
func (d *DB) PriorityTx(ctx context.Context, f func(tx *Tx) error) error {
	return runTx(ctx, d.priorityTx, f)
}

func runTx(ctx context.Context, carry func(context.Context, func(txSession) error) error, f func(tx *Tx) error) error {
	if err := checkWritable(ctx); err != nil {
		return err
	}
	if guard := commitGuardFrom(ctx); guard != nil {
		f = guard.before(ctx, f)
	}
	var after []func()
	err := carry(ctx, func(s txSession) error {
		tx := &Tx{session: s}
		if err := f(tx); err != nil {
			return err
		}
		after = tx.afterCommit
		return tx.failed
	})
	if err != nil {
		return asUnavailable(err)
	}
	for _, f := range after {
		f()
	}
	return nil
}

// Exec runs s in its own transaction, as Tx does, and returns how many rows it changed: 0 with an
// error.
func (d *DB) Exec(ctx context.Context, s Statement) (changed int64, err error) {
	err = d.Tx(ctx, func(tx *Tx) error {
		changed, err = tx.Exec(ctx, s)
		return err
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// Run runs statements in one transaction, as Tx does.
func (d *DB) Run(ctx context.Context, statements ...Statement) error {
	return d.Tx(ctx, func(tx *Tx) error { return tx.Run(ctx, statements...) })
}

// ExecOrFail runs s, and returns the error unchanged if s changed no row.
func (d *DB) ExecOrFail(ctx context.Context, s Statement, unchanged error) error {
	return d.Tx(ctx, func(tx *Tx) error { return tx.ExecOrFail(ctx, s, unchanged) })
}

// AfterCommit runs f once the transaction is committed.
func (t *Tx) AfterCommit(f func()) { t.afterCommit = append(t.afterCommit, f) }

// Exec runs s and returns how many rows it changed.
func (t *Tx) Exec(_ context.Context, s Statement) (int64, error) { return t.run(s, nil) }

// Run runs statements in order, until one fails.
func (t *Tx) Run(_ context.Context, statements ...Statement) error {
	for _, s := range statements {
		if _, err := t.run(s, nil); err != nil {
			return err
		}
	}
	return nil
}

// ExecOrFail runs s, and returns the error unchanged if s changed no row.
func (t *Tx) ExecOrFail(ctx context.Context, s Statement, unchanged error) error {
	n, err := t.Exec(ctx, s)
	if err == nil && n == 0 {
		return unchanged
	}
	return err
}

var lockQuery = SQL(`SELECT {lock}($1)`)

// Lock serializes transactions that lock the same name and id, until they end. It is for limits
// on the number of rows: a count after Lock is still true at the commit. Call it first. On
// SQLite, transactions are serialized anyway.
func (t *Tx) Lock(_ context.Context, name string, id ID) error {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", name, id)
	_, err := t.run(lockQuery.With(int64(h.Sum64())), nil) //nolint:gosec // any number will do
	return err
}

// Each calls f for every row that s returns. f must not use the transaction.
func (t *Tx) Each(_ context.Context, s Statement, f func(Row) error) error {
	_, err := t.run(s, f)
	return err
}

// One scans the row that s returns, or returns ErrNoRow.
func (t *Tx) One(_ context.Context, s Statement, dst ...any) error {
	found := false
	_, err := t.run(s, func(r Row) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dst...)
	})
	if err == nil && !found {
		return ErrNoRow
	}
	return err
}

// run runs a statement, unless one has failed. SQLite may have rolled back by itself then (disk
// full), and would run the next statement outside any transaction.
func (t *Tx) run(s Statement, f func(Row) error) (int64, error) {
	if t.failed != nil {
		return 0, t.failed
	}
	var own error // error of f, which does not break the transaction
	read := f
	if f != nil {
		read = func(r Row) error {
			own = f(r)
			return own
		}
	}
	n, err := t.session.run(s, read)
	if err != nil && own == nil {
		t.failed = err
	}
	return n, err
}
