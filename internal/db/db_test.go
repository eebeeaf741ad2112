// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	addAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, $3, 'active', 0)`)
	addUsage   = db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) VALUES ($1, 0, 0, 0)`)
	use        = db.SQL(`UPDATE mailbox_usage SET bytes = bytes + $2, messages = messages + 1
		WHERE mailbox = $1 AND bytes + $2 <= 100 RETURNING bytes`)
	usage     = db.SQL(`SELECT bytes, messages FROM mailbox_usage WHERE mailbox = $1`)
	nameOf    = db.SQL(`SELECT name FROM account WHERE id = $1`)
	accounts  = db.SQL(`SELECT id, name FROM account WHERE id > $1 ORDER BY id LIMIT 1000`)
	setName   = db.SQL(`UPDATE account SET name = $2 WHERE id = $1`)
	addBlob   = db.SQL(`INSERT INTO blob (id, size, file, bytes) VALUES ($1, $2, 0, $3)`)
	blobs     = db.SQL(`SELECT id, CASE WHEN size = 0 THEN NULL ELSE bytes END FROM blob WHERE id > $1 ORDER BY id LIMIT 1000`)
	breakRule = db.SQL(`UPDATE account SET status = $2 WHERE id = $1`)
)

func TestOpenTwice(t *testing.T) {
	dbtest.EachEmptyURL(t, func(t *testing.T, url string) {
		first := dbtest.Open(t, url)
		id := first.NewID()
		if _, err := first.Exec(t.Context(), addAccount.With(id, "a@b.example", "A")); err != nil {
			t.Fatal(err)
		}
		second := dbtest.Open(t, url)
		var name string
		if err := second.One(t.Context(), nameOf.With(id), &name); err != nil || name != "A" {
			t.Fatalf("name %q, %v", name, err)
		}
	})
}

// Bytes that were read belong to the reader, and later reads don't change them.
func TestBytesStay(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		want := [][]byte{[]byte("first"), nil, bytes.Repeat([]byte("long "), 10_000), []byte("last!")}
		for _, b := range want {
			if _, err := d.Exec(ctx, addBlob.With(d.NewID(), len(b), append([]byte{}, b...))); err != nil {
				t.Fatal(err)
			}
		}
		read := func() (all [][]byte) {
			t.Helper()
			var one []byte
			into := []any{new(db.ID), &one}
			err := d.Each(ctx, blobs.With(0), func(r db.Row) error {
				err := r.Scan(into...)
				all = append(all, one)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		got := read()
		for _, b := range read() {
			for i := range b {
				b[i] = '?'
			}
		}
		for i, b := range want {
			if !bytes.Equal(got[i], b) || b == nil && got[i] != nil {
				t.Errorf("%d: %.20q instead of %.20q", i, got[i], b)
			}
		}
	})
}

func TestTxRollsBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, id, refused := t.Context(), d.NewID(), errors.New("refused")
		ran := false
		err := d.Tx(ctx, func(tx *db.Tx) error {
			tx.AfterCommit(func() { ran = true })
			if _, err := tx.Exec(ctx, addAccount.With(id, "a@b.example", "A")); err != nil {
				return err
			}
			return refused
		})
		if !errors.Is(err, refused) || ran {
			t.Fatalf("got %v, after commit ran: %v", err, ran)
		}
		if err := d.One(ctx, nameOf.With(id), new(string)); !errors.Is(err, db.ErrNoRow) {
			t.Errorf("the row is there: %v", err)
		}
	})
}

func TestConflict(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		add := func() error {
			_, err := d.Exec(t.Context(), addAccount.With(d.NewID(), "a@b.example", "A"))
			return err
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		if err := add(); !d.IsConflict(err) {
			t.Errorf("a second account of one address: %v", err)
		}
	})
}

// Many callers share commits, and each gets its own result.
func TestWriteTellsEachTheTruth(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, mailbox := t.Context(), d.NewID()
		full := fault.New(fault.OverQuota, "over_quota", "full")
		if err := d.Write(ctx, mailbox, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addUsage.With(mailbox)) }}); err != nil {
			t.Fatal(err)
		}
		const callers = 64
		ids, results, committed := make([]db.ID, callers), make([]error, callers), make([]bool, callers)
		var wg sync.WaitGroup
		for i := range callers {
			ids[i] = d.NewID()
			wg.Go(func() {
				var bytes int64
				results[i] = d.Write(ctx, mailbox, &db.Mutation{
					Guard: func(b *db.Batch) { b.Queue(use.With(mailbox, 10)).One(&bytes).OrFail(full) },
					Apply: func(b *db.Batch) {
						b.Queue(addAccount.With(ids[i], fmt.Sprint(i), fmt.Sprint(bytes)))
						if i%8 == 7 {
							b.Queue(breakRule.With(ids[i], "no such status")) // fails in the middle of the batch
						}
					},
					AfterCommit: func() { committed[i] = true },
				})
			})
		}
		wg.Wait()
		stored := 0
		for i := range callers {
			err := d.One(ctx, nameOf.With(ids[i]), new(string))
			if there := err == nil; there != (results[i] == nil) || there != committed[i] {
				t.Errorf("caller %d was told %v; stored %v, after commit %v", i, results[i], there, committed[i])
			} else if there {
				stored++
			}
			if i%8 == 7 && results[i] == nil {
				t.Errorf("caller %d broke a rule and was told nothing", i)
			}
		}
		var bytes, messages int64
		if err := d.One(ctx, usage.With(mailbox), &bytes, &messages); err != nil {
			t.Fatal(err)
		}
		if stored != 10 || bytes != 100 || messages != 10 {
			t.Errorf("%d stored, usage %d bytes %d messages; want 10, 100, 10", stored, bytes, messages)
		}
	})
}

// OrFail also requires a row of a SELECT that has no reader.
func TestWriteElseOfSelect(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		id, gone := d.NewID(), errors.New("gone")
		exists := func() error {
			return d.Write(t.Context(), id, &db.Mutation{Guard: func(b *db.Batch) { b.Queue(nameOf.With(id)).OrFail(gone) }})
		}
		if err := exists(); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		if err := d.Write(t.Context(), id, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addAccount.With(id, "a", "A")) }}); err != nil {
			t.Fatal(err)
		}
		if err := exists(); err != nil {
			t.Error(err)
		}
	})
}

// A job that declines after it has changed something leaves no trace, and the others of its batch
// are committed.
func TestWriteDeclineAfterChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, id := t.Context(), d.NewID()
		gone := errors.New("gone")
		err := d.Write(ctx, id, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addAccount.With(id, "x", "before")) }})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var declined error
		others := make([]db.ID, 20)
		wg.Go(func() {
			declined = d.Write(ctx, id, &db.Mutation{Guard: func(b *db.Batch) {
				b.Queue(setName.With(id, "after"))
				b.Queue(setName.With(db.ID(1), "nobody")).OrFail(gone)
			}})
		})
		for i := range others {
			others[i] = d.NewID()
			wg.Go(func() {
				if err := d.Write(ctx, id, &db.Mutation{Apply: func(b *db.Batch) {
					b.Queue(addAccount.With(others[i], fmt.Sprint(i), "other"))
				}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var name string
		if err := d.One(ctx, nameOf.With(id), &name); err != nil || name != "before" || !errors.Is(declined, gone) {
			t.Errorf("name %q, %v; declined with %v", name, err, declined)
		}
		n := 0
		if err := d.Each(ctx, accounts.With(0), func(r db.Row) error { n++; return r.Scan(new(db.ID), new(string)) }); err != nil || n != 21 {
			t.Errorf("%d accounts, %v", n, err)
		}
	})
}

// A node that starts while another migrates waits without a timeout, although its sessions have a
// lock_timeout for other locks.
func TestMigrationTurn(t *testing.T) {
	u := dbtest.EmptyPostgres(t)
	admin := connect(t, u)
	const lock = `(hashtext('mailstead migration ' || current_schema()))`
	exec(t, admin, "SELECT pg_advisory_lock"+lock)
	opened := make(chan error, 1)
	go func() {
		d, err := db.Open(context.Background(), db.Options{URL: u + "&lock_timeout=200"})
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	for waits := false; !waits && len(opened) == 0; { // longer than for another lock
		if err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND waitstart < clock_timestamp() - interval '300 ms'
				AND objid::bigint = hashtext('mailstead migration ' || current_schema())::bigint & 4294967295)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, admin, "SELECT pg_advisory_unlock"+lock)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}
