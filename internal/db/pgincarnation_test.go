// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// After a crash PostgreSQL reassigns the ids of transactions that had not reached the disk. So a
// committed one with the same id proves nothing.
func TestTransactionOfAnotherLife(t *testing.T) {
	ctx := t.Context()
	u := dbtest.Postgres(t)
	crashed := dbtest.Open(t, u)
	old, err := crashed.Life(ctx)
	if err != nil || old == "" {
		t.Fatalf("life %q, %v", old, err)
	}
	again := dbtest.Open(t, u+"&application_name=again")
	if life, err := again.Life(ctx); life != old || err != nil {
		t.Errorf("life %q while the server lives, %v; want %q", life, err, old)
	}
	admin := connect(t, u)
	number := func(end string) (xid uint64) {
		exec(t, admin, "BEGIN")
		if err := admin.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
			t.Fatal(err)
		}
		exec(t, admin, end)
		return xid
	}
	exec(t, admin, "TRUNCATE server_incarnation") // as recovery does
	d, err := db.Open(ctx, db.Options{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	life, err := d.Life(ctx)
	if err != nil || life == "" || life == old {
		t.Fatalf("life %q after %q, %v", life, old, err)
	}
	committed, aborted := number("COMMIT"), number("ROLLBACK")
	for _, c := range []struct {
		name        string
		xid         uint64
		life        string
		want, known bool
	}{
		{"committed in this life", committed, life, true, true},
		{"aborted in this life", aborted, life, false, true},
		{"committed in this life, begun in another", committed, old, false, false},
		{"committed, begun nobody knows when", committed, "", false, false},
		{"aborted in this life, begun in another", aborted, old, false, true},
		{"still to come in this life, begun in another", aborted + 1<<20, old, false, true},
	} {
		if got, err := d.Committed(ctx, c.xid, c.life); got != c.want || (err == nil) != c.known {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
