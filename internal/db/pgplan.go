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
	minReplanInterval = 250 * time.Millisecond
	maxReplanInterval = 5 * time.Minute
)

// replanSchedule is when a connection's plans are to be made anew.
type replanSchedule struct {
	due      time.Time
	interval time.Duration
}

// replan drops the plans of a connection's statements from time to time, so
// that each is planned anew when it runs next. PostgreSQL plans by the size of
// the tables, and does it again by itself only after autovacuum's ANALYZE, up to
// minutes later: until then, what was planned when the service was new would read
// some whole index of thousands of rows that was empty then, over and over.
func replan(ctx context.Context, conn *pgx.Conn, now time.Time) error {
	const key = "replanning"
	data := conn.PgConn().CustomData()
	r, ok := data[key].(*replanSchedule)
	if !ok {
		r = &replanSchedule{due: now.Add(minReplanInterval), interval: minReplanInterval}
		data[key] = r
	}
	if now.Before(r.due) {
		return nil
	}
	r.interval = min(2*r.interval, maxReplanInterval)
	r.due = now.Add(r.interval)
	_, err := conn.Exec(ctx, "DISCARD PLANS")
	return err
}
