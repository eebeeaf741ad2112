// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Backlog counts the waiting and held deliveries of all destinations.
type Backlog struct {
	Waiting, Held         int // at most maxCount
	MoreWaiting, MoreHeld bool
	DueAt                 time.Time // earliest due time of a waiting delivery; zero: none waits
	AnyLeased             bool      // whether a node has leased deliveries
}

var (
	backlogWaitingQuery = db.SQL(`SELECT COUNT(*), COALESCE(MIN(due_at), 0) FROM (SELECT due_at FROM delivery
		WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT $1) AS counted`)
	backlogHeldQuery = db.SQL(`SELECT COUNT(*) FROM (SELECT message FROM delivery
		WHERE lease = 0 ORDER BY destination, message, n LIMIT $1) AS counted`)
	anyLeasedQuery = db.SQL(`SELECT lease FROM delivery WHERE lease > 0 ORDER BY lease LIMIT 1`)
)

// ReadBacklog counts the waiting and the held deliveries, each up to maxCount.
func ReadBacklog(ctx context.Context, r db.Reader) (b Backlog, err error) {
	var due int64
	if err := r.One(ctx, backlogWaitingQuery.With(maxCount), &b.Waiting, &due); err != nil {
		return b, err
	}
	if err := r.One(ctx, backlogHeldQuery.With(maxCount), &b.Held); err != nil {
		return b, err
	}
	b.AnyLeased, err = db.Exists(ctx, r, anyLeasedQuery.With())
	b.DueAt, b.MoreWaiting, b.MoreHeld = db.Time(due), b.Waiting == maxCount, b.Held == maxCount
	return b, err
}
