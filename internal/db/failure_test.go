// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

func add(id db.ID) func(*db.Batch) {
	return func(b *db.Batch) { b.Queue(addAccount.With(id, id.String(), "A")) }
}

func stored(t *testing.T, d *db.DB, id db.ID) bool {
	t.Helper()
	err := d.One(t.Context(), nameOf.With(id), new(string))
	if err != nil && !errors.Is(err, db.ErrNoRow) {
		t.Fatal(err)
	}
	return err == nil
}

// The change of a guard is undone when the apply declines.
func TestWriteDeclineInApply(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, gone := t.Context(), errors.New("gone")
		declined, kept := d.NewID(), d.NewID()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := d.Write(ctx, declined, &db.Mutation{
				Guard: add(declined),
				Apply: func(b *db.Batch) { b.Queue(setName.With(db.ID(1), "nobody")).OrFail(gone) },
			}); !errors.Is(err, gone) {
				t.Errorf("got %v", err)
			}
		})
		wg.Go(func() {
			if err := d.Write(ctx, declined, &db.Mutation{Apply: add(kept)}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if stored(t, d, declined) || !stored(t, d, kept) {
			t.Error("the wrong one is stored")
		}
	})
}

// On PostgreSQL the INSERTs of a batch are combined into few statements; every job still gets its
// own row and its own error.
func TestManyRows(t *testing.T) {
	addWhole := db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, $3, $4, $5)`)
	statementsOf := db.SQL(`SELECT COUNT(DISTINCT CAST(cmin AS TEXT)) FROM account WHERE id BETWEEN $1 AND $2`)
	add := func(id db.ID) *db.Mutation {
		return &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addWhole.With(id, id.String()+"@a.example", id.String(), "active", 0)) }}
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const n = 29
		ids, jobs := make([]db.ID, n), make([]*db.Mutation, n)
		for i := range ids {
			ids[i] = d.NewID()
			jobs[i] = add(ids[i])
		}
		for i, err := range d.Batch(ids, jobs) {
			var name string
			if err := errors.Join(err, d.One(t.Context(), nameOf.With(ids[i]), &name)); err != nil || name != ids[i].String() {
				t.Errorf("job %d: %q, %v", i, name, err)
			}
		}
		if d.Engine() == db.Postgres {
			var statements int
			if err := d.One(t.Context(), statementsOf.With(ids[0], ids[n-1]), &statements); err != nil || statements != 5 {
				t.Errorf("8 + 8 + 8 + 4 + 1 rows by %d statements, %v", statements, err)
			}
		}
		taken := ids[5]
		for i := range ids {
			if i != 5 {
				ids[i] = d.NewID()
				jobs[i] = add(ids[i])
			}
		}
		for i, err := range d.Batch(ids, jobs) {
			if ids[i] == taken {
				if !d.IsConflict(err) {
					t.Errorf("a row that was there: %v", err)
				}
			} else if err != nil || !stored(t, d, ids[i]) {
				t.Errorf("job %d: %v", i, err)
			}
		}
	})
}

// A panic in a job's function is that job's error; the batcher continues.
func TestWritePanics(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		id := d.NewID()
		if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(id)}); err != nil {
			t.Fatal(err)
		}
		bad := func(*db.Batch) { panic("oops") }
		badRow := func(b *db.Batch) {
			b.Queue(accounts.With(0)).Each(func(db.Row) error { panic("oops") })
		}
		for name, job := range map[string]func(id db.ID) *db.Mutation{
			"guard":           func(id db.ID) *db.Mutation { return &db.Mutation{Guard: bad, Apply: add(id)} },
			"apply":           func(id db.ID) *db.Mutation { return &db.Mutation{Guard: add(id), Apply: bad} },
			"row of a guard":  func(id db.ID) *db.Mutation { return &db.Mutation{Guard: badRow, Apply: add(id)} },
			"row of an apply": func(id db.ID) *db.Mutation { return &db.Mutation{Guard: add(id), Apply: badRow} },
		} {
			var wg sync.WaitGroup
			panics, fine := d.NewID(), d.NewID()
			wg.Go(func() {
				if err := d.Write(t.Context(), id, job(panics)); err == nil || !strings.Contains(err.Error(), "oops") {
					t.Errorf("%s: %v", name, err)
				}
			})
			wg.Go(func() {
				if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(fine)}); err != nil {
					t.Errorf("%s: another job: %v", name, err)
				}
			})
			wg.Wait()
			if stored(t, d, panics) || !stored(t, d, fine) {
				t.Errorf("%s: the wrong one is stored", name)
			}
		}
	})
}

// A panic after the commit reaches the caller, and only that one.
func TestAfterCommitPanics(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		id, next := d.NewID(), d.NewID()
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = d.Write(t.Context(), id, &db.Mutation{Apply: add(id), AfterCommit: func() { panic("oops") }})
		}()
		if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(next)}); err != nil || !stored(t, d, id) {
			t.Errorf("the lane is dead: %v", err)
		}
	})
}

func TestTxPanics(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		id, next := d.NewID(), d.NewID()
		func() {
			defer func() { _ = recover() }()
			_ = d.Tx(t.Context(), func(tx *db.Tx) error {
				_, _ = tx.Exec(t.Context(), addAccount.With(id, "a", "A"))
				panic("oops")
			})
		}()
		if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(next)}); err != nil || stored(t, d, id) {
			t.Errorf("stored, or %v", err)
		}
	})
}

// After a failed statement nothing of a Tx is stored, even if its function ignores the error.
func TestTxGoesOnAfterError(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, before, after := t.Context(), d.NewID(), d.NewID()
		err := d.Tx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, addAccount.With(before, "a", "A")); err != nil {
				return err
			}
			_, failed := tx.Exec(ctx, breakRule.With(before, "no such status"))
			_, later := tx.Exec(ctx, addAccount.With(after, "b", "B"))
			if failed == nil || later == nil {
				t.Errorf("failed: %v, later: %v", failed, later)
			}
			return nil
		})
		if err == nil || stored(t, d, before) || stored(t, d, after) {
			t.Errorf("told %v, stored", err)
		}
	})
}

// A caller that is cancelled midway leaves no partial write: all is stored or nothing.
func TestCancelledMidway(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		first, second, third := d.NewID(), d.NewID(), d.NewID()
		ctx, cancel := context.WithCancel(t.Context())
		err := d.Tx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, addAccount.With(first, "a", "A")); err != nil {
				return err
			}
			cancel()
			_, err := tx.Exec(ctx, addAccount.With(second, "b", "B"))
			return err
		})
		if err != nil || !stored(t, d, first) || !stored(t, d, second) {
			t.Errorf("tx: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		if err := d.Write(ctx, first, &db.Mutation{Guard: func(*db.Batch) { cancel() }, Apply: add(third)}); err != nil || !stored(t, d, third) {
			t.Errorf("write: %v", err)
		}
		if err := d.Tx(ctx, func(*db.Tx) error { t.Error("began"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a transaction of nobody: %v", err)
		}
	})
}

// Readers that are cancelled midway leave no connection behind.
func TestCancelledReaders(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for range 5 {
			id := d.NewID()
			if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(id)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			_ = d.Each(ctx, accounts.With(0), func(db.Row) error { cancel(); return nil })
			cancel()
			_ = d.Each(ctx, accounts.With(0), func(db.Row) error { return nil })
			func() {
				defer func() { _ = recover() }()
				_ = d.Each(t.Context(), accounts.With(0), func(db.Row) error { panic("oops") })
			}()
		}
		n := 0
		if err := d.Each(t.Context(), accounts.With(0), func(db.Row) error { n++; return nil }); err != nil || n != 5 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

// Another process, for example a backup, may hold SQLite's lock for a while.
func TestBusy(t *testing.T) {
	url := dbtest.SQLite(t)
	d := dbtest.Open(t, url)
	other, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // nothing to lose
	held, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var wg, ready sync.WaitGroup
	released := make(chan struct{})
	for i := range 20 {
		ready.Add(1)
		wg.Go(func() {
			id := d.NewID()
			ready.Done()
			var err error
			if i%2 == 0 {
				err = d.Write(t.Context(), id, &db.Mutation{Apply: add(id)})
			} else {
				err = d.Tx(t.Context(), func(tx *db.Tx) error {
					select {
					case <-released:
					default:
						t.Error("began under another's lock")
					}
					_, err := tx.Exec(t.Context(), addAccount.With(id, id.String(), "A"))
					return err
				})
			}
			if err != nil || !stored(t, d, id) {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	ready.Wait()
	close(released)
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// Calls after Close return ErrClosed; none blocks forever.
func TestAfterClose(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, err := db.Open(t.Context(), db.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if err := d.Write(ctx, 1, &db.Mutation{}); !errors.Is(err, db.ErrClosed) {
			t.Errorf("write: %v", err)
		}
		if err := d.Tx(ctx, func(*db.Tx) error { return nil }); !errors.Is(err, db.ErrClosed) {
			t.Errorf("tx: %v", err)
		}
		if err := d.One(ctx, nameOf.With(1), new(string)); !errors.Is(err, db.ErrClosed) {
			t.Errorf("read: %v", err)
		}
	})
}

// One bad job in a full batch costs few commits, and no other job.
func TestBadJobAmongMany(t *testing.T) {
	for bad := range 7 {
		var runs [][]int
		answers := db.CommitTogether(7, func(jobs []int) error {
			runs = append(runs, jobs)
			for _, j := range jobs {
				if j == bad {
					return errors.New("bad")
				}
			}
			return nil
		})
		for i, err := range answers {
			if (err != nil) != (i == bad) {
				t.Errorf("bad %d: job %d was told %v", bad, i, err)
			}
		}
		if len(runs) > 7 {
			t.Errorf("bad %d: %d transactions: %v", bad, len(runs), runs)
		}
	}
	runs := 0
	for i, err := range db.CommitTogether(7, func([]int) error { runs++; return db.Shared(fmt.Errorf("gone: %w", db.ErrCommitUnknown)) }) {
		if !errors.Is(err, db.ErrCommitUnknown) || runs != 1 {
			t.Errorf("job %d was told %v after %d runs", i, err, runs)
		}
	}
}
