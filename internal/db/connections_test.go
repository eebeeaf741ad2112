// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

var (
	slowQuery            = db.SQL(`SELECT CAST(pg_sleep(0.02) AS TEXT)`)
	connectionCountQuery = db.SQL(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()`)
)

// However much is read and written at once, a database has no more connections than it may.
func TestMaxConns(t *testing.T) {
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.Postgres(t), MaxConns: db.MinConns})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	listening, stop := context.WithCancel(t.Context())
	defer stop()
	go d.Listen(listening, func(string) {}, func() {}) //nolint:errcheck // until the end of the test
	g, ctx := errgroup.WithContext(t.Context())
	for range 100 {
		g.Go(func() error {
			var text string
			return d.One(ctx, slowQuery.With(), &text)
		})
		g.Go(func() error {
			return d.Write(ctx, d.NewID(), &db.Mutation{Apply: func(b *db.Batch) { b.Queue(slowQuery.With()) }})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := d.One(t.Context(), connectionCountQuery.With(), &n); err != nil {
		t.Fatal(err)
	}
	if n > db.MinConns {
		t.Errorf("%d connections are open, of %d", n, db.MinConns)
	}
}
