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
	failed      error // of a statement: both engines then give everything up
	afterCommit []func()
}

// Tx runs f in a transaction of its own and returns after the commit: nil, or
// an error with which nothing of it was written, save ErrCommitUnknown. f runs again
// when the database asks for it (BUSY, 40001, 40P01, a lost connection), so it
// must have no side effects but through AfterCommit. Once f began, ctx no
// longer interrupts it. Once a statement of it failed, all that follow fail
// too, and so does the commit.
func (d *DB) Tx(ctx context.Context, f func(tx *Tx) error) error {
	return runTx(ctx, d.tx, f)
}

func runTx(ctx context.Context, carry func(context.Context, func(txSession) error) error, f func(tx *Tx) error) error {
	if err := checkWritable(ctx); err != nil {
		return err
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

// Exec runs s in a transaction of its own, as Tx does, and returns how many
// rows it changed: 0 with an error.
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

// AfterCommit runs f once the transaction is committed.
func (t *Tx) AfterCommit(f func()) { t.afterCommit = append(t.afterCommit, f) }

// Exec runs s and returns how many rows it changed.
func (t *Tx) Exec(_ context.Context, s Statement) (int64, error) { return t.run(s, nil) }

var lockQuery = SQL(`SELECT {lock}($1)`)

// Lock makes transactions that lock the same name and id follow one another until
// they end. It is for limits on how many rows there may be: what is counted after
// it is still true at the commit. Take it first. On SQLite, transactions follow one
// another anyway.
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

// run runs a statement. After a failed one SQLite may have rolled back by
// itself (disk full) and would carry out the next one outside any transaction.
func (t *Tx) run(s Statement, f func(Row) error) (int64, error) {
	if t.failed != nil {
		return 0, t.failed
	}
	var own error // of f, which does no harm to the transaction
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
