// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Backlog is what waits in the rows of all destinations.
type Backlog struct {
	Waiting, Held         int // as far as was counted
	MoreWaiting, MoreHeld bool
	DueAt                 time.Time // since when the longest has been due, or when the first will be; zero: nothing waits
	AnyLeased             bool      // a node has something in hand
}

var (
	backlogWaitingQuery = db.SQL(`SELECT COUNT(*), COALESCE(MIN(due_at), 0) FROM (SELECT due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT $1) AS counted`)
	backlogHeldQuery = db.SQL(`SELECT COUNT(*) FROM (SELECT message FROM delivery
		WHERE tenure = 0 ORDER BY destination, message, n LIMIT $1) AS counted`)
	anyLeasedQuery = db.SQL(`SELECT tenure FROM delivery WHERE tenure > 0 ORDER BY tenure LIMIT 1`)
)

// ReadBacklog counts what waits and what is held, each up to a bound.
func ReadBacklog(ctx context.Context, r db.Reader) (b Backlog, err error) {
	var due int64
	if err := r.One(ctx, backlogWaitingQuery.With(maxCount), &b.Waiting, &due); err != nil {
		return b, err
	}
	if err := r.One(ctx, backlogHeldQuery.With(maxCount), &b.Held); err != nil {
		return b, err
	}
	err = r.One(ctx, anyLeasedQuery.With(), new(int64))
	b.AnyLeased = err == nil
	if errors.Is(err, db.ErrNoRow) {
		err = nil
	}
	b.DueAt, b.MoreWaiting, b.MoreHeld = db.Time(due), b.Waiting == maxCount, b.Held == maxCount
	return b, err
}
