// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

// A server whose disk is full may stop during a commit, and can't be asked for the outcome while it
// is down. Callers then get ErrCommitUnknown, so that they discard nothing that may be committed.
func TestUnknownIsNoOutage(t *testing.T) {
	for _, cause := range []error{
		&pgconn.PgError{Severity: "PANIC", Code: "53100"},
		&pgconn.PgError{Severity: "FATAL", Code: "57P03"},
		&pgconn.ConnectError{},
	} {
		if err := db.Outage(cause); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%T alone: %v", cause, err)
		}
		err := db.Outage(fmt.Errorf("%w: %w", db.ErrCommitUnknown, errors.Join(errors.New("cut"), cause)))
		if kind := fault.KindOf(err); !errors.Is(err, db.ErrCommitUnknown) || kind != fault.Internal {
			t.Errorf("%T while committing is of kind %v", cause, kind)
		}
	}
}

var (
	anything = db.SQL(`SELECT COUNT(*) FROM node`)
	manyRows = db.SQL(`SELECT n FROM generate_series(1, 1000000) n`)
)

// Reads fail with a fault.Unavailable while the database is down, as writes do.
func TestAway(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d, err := db.Open(t.Context(), db.Options{URL: proxy.URL, OutageWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	read := func() error { return d.One(t.Context(), anything.With(), new(int64)) }
	write := func() error { return d.Write(t.Context(), 1, &db.Mutation{Apply: add(d.NewID())}) }
	midway := func() error {
		return d.Each(t.Context(), manyRows.With(), func(db.Row) error { proxy.Cut(); return nil })
	}
	always := func() error {
		return d.Tx(t.Context(), func(tx *db.Tx) error {
			proxy.Cut()
			return tx.One(t.Context(), anything.With(), new(int64))
		})
	}
	for what, try := range map[string]func() error{"a read": midway, "each try of a transaction": always} {
		if err := try(); !fault.Is(err, fault.Unavailable) {
			t.Errorf("cut off in the middle of %s: %v", what, err)
		}
	}
	for _, try := range []func() error{read, write} {
		proxy.Down.Store(true)
		proxy.Cut()
		if err := try(); !fault.Is(err, fault.Unavailable) {
			t.Errorf("while it is away: %v", err)
		}
		proxy.Down.Store(false)
		if err := try(); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	}
}
