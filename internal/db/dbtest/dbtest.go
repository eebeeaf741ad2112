// SPDX-License-Identifier: Apache-2.0

// Package dbtest provides tests with fresh databases of both engines.
package dbtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

// Each runs f on a fresh database of each engine.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	EachURL(t, func(t *testing.T, u string) {
		f(t, Open(t, u))
	})
}

// EachURL runs f with the URL of a fresh database of each engine.
func EachURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// EachEmptyURL runs f with the URL of a database without tables on each engine.
func EachEmptyURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, NoSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, EmptyPostgres(t)) })
}

// Exec runs statements in one transaction, and returns how many rows they changed together. The
// test fails if one of them fails.
func Exec(t testing.TB, d *db.DB, statements ...db.Statement) (changed int64) {
	t.Helper()
	err := d.Tx(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
		changed = 0
		for _, s := range statements {
			n, err := tx.Exec(t.Context(), s)
			if err != nil {
				return err
			}
			changed += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

var (
	backendPIDQuery = db.SQL(`SELECT pg_backend_pid()`)
	blockedQuery    = db.SQL(`SELECT COUNT(*) FROM pg_stat_activity WHERE CAST($1 AS INTEGER) = ANY(pg_blocking_pids(pid)) AND query LIKE $2`)
)

// AwaitBlocked returns once a statement whose text matches like waits for a lock of tx. On SQLite
// it returns at once, as writers are serialized.
func AwaitBlocked(ctx context.Context, d *db.DB, tx *db.Tx, like string) error {
	if d.Engine() != db.Postgres {
		return nil
	}
	var backend, waiting int
	err := tx.One(ctx, backendPIDQuery.With(), &backend)
	for err == nil && waiting == 0 {
		err = d.One(ctx, blockedQuery.With(backend, like), &waiting)
	}
	return err
}

// Open opens a database and closes it with the test.
func Open(t testing.TB, u string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{
		URL: u, MaxConns: db.MinConns, // the server starts a process for each
		Fatal: func(err error) { panic(fmt.Sprintf("fatal: %v", err)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the database: %v", err)
		}
	})
	return d
}
