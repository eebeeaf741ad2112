// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A connection's statements are replanned after minReplanInterval, and then at intervals that
// double up to maxReplanInterval.
const (
	minReplanInterval = 250 * time.Millisecond
	maxReplanInterval = 5 * time.Minute
)

// replanSchedule is when to replan a connection's statements.
type replanSchedule struct {
	due      time.Time
	interval time.Duration
}

// replan drops the plans of a connection's statements from time to time, so that PostgreSQL
// plans each again when it runs next. PostgreSQL plans by the size of the tables, and replans by
// itself only after autovacuum's ANALYZE, minutes later. Until then, plans from the time when
// the service was new would scan whole indexes of thousands of rows that were empty then.
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
