// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Plans are made anew when a connection is so old, and then each time when
// twice as much time has passed.
const (
	firstReplan   = 250 * time.Millisecond
	longestReplan = 5 * time.Minute
)

// replanning is when a connection's plans are to be made anew.
type replanning struct {
	due  time.Time
	rest time.Duration
}

// replan drops the plans of a connection's statements from time to time, so
// that each is planned anew when it runs next. PostgreSQL plans by the size of
// the tables, and does it again by itself only after autovacuum's ANALYZE, up to
// minutes later: until then, what was planned when the service was new would read
// some whole index of thousands of rows that was empty then, over and over.
func replan(ctx context.Context, conn *pgx.Conn, now time.Time) error {
	const key = "replanning"
	data := conn.PgConn().CustomData()
	r, ok := data[key].(*replanning)
	if !ok {
		r = &replanning{due: now.Add(firstReplan), rest: firstReplan}
		data[key] = r
	}
	if now.Before(r.due) {
		return nil
	}
	r.rest = min(2*r.rest, longestReplan)
	r.due = now.Add(r.rest)
	_, err := conn.Exec(ctx, "DISCARD PLANS")
	return err
}
