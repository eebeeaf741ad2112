// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// Statements that were planned on an empty table are replanned once it has grown, without waiting
// for autovacuum.
func TestReplan(t *testing.T) {
	ctx := t.Context()
	conn := plannerConn(t, dbtest.Postgres(t))
	run := func(sql string) string {
		t.Helper()
		results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, r := range results {
			for _, row := range r.Rows {
				fmt.Fprintln(&text, string(row[0]))
			}
		}
		return text.String()
	}
	// A full scan shows best where it is allowed.
	run(`SET enable_seqscan = on; SET enable_bitmapscan = on;
		CREATE TABLE box (id BIGINT PRIMARY KEY, size BIGINT NOT NULL) WITH (autovacuum_enabled = off);
		INSERT INTO box VALUES (1, 0);
		ANALYZE box;
		PREPARE look AS SELECT size FROM box WHERE id = $1`)
	whole := func() bool { return strings.Contains(run(`EXPLAIN EXECUTE look(1)`), "Seq Scan") }
	if !whole() {
		t.Fatal("a table of one row is not read whole: this test shows nothing")
	}
	run(`INSERT INTO box SELECT n, 0 FROM generate_series(2, 10000) AS n`)
	// First the connection is new, then old enough.
	for _, now := range []time.Time{start, start.Add(db.FirstReplan)} {
		if err := db.Replan(ctx, conn, now); err != nil {
			t.Fatal(err)
		}
	}
	if whole() {
		t.Fatal("the plan of the small table was kept")
	}
}

// Plans are dropped after minReplanInterval, then after twice as long. On a closed connection
// Replan only fails when it is due.
func TestWhenReplanned(t *testing.T) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, dbtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		due   bool
	}{{0, false}, {db.FirstReplan - 1, false}, {db.FirstReplan, true}, {3*db.FirstReplan - 1, false}, {3 * db.FirstReplan, true}, {7*db.FirstReplan - 1, false}} {
		if err := db.Replan(ctx, conn, start.Add(step.after)); (err != nil) != step.due {
			t.Errorf("after %v: %v, due is %v", step.after, err, step.due)
		}
	}
}

var start = time.Unix(1_000_000, 0)
