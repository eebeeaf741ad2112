// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
)

var retryWaitingQuery = db.SQL(`UPDATE delivery SET due_at = CASE WHEN due_at > $3 THEN $3 ELSE due_at END
	WHERE message = $1 AND n = $2 AND lease IS NULL AND state IN ('queued', 'deferred') RETURNING n`)

// Retry makes waiting deliveries due now, and makes the nodes try destinations that are in backoff.
// With a single message it also requeues failed deliveries. It leaves scheduled, held and leased
// deliveries unchanged.
func (q *Queue) Retry(ctx context.Context, c Command) (res Result, err error) {
	if err := c.Normalize(); err != nil {
		return res, err
	}
	now := q.Now()
	to := map[string]bool{}
	err = q.forEachChunk(ctx, &c, []int{indexWaiting}, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool { return e.lease != 0 || e.Held || e.state == queue.Scheduled })
		res.Matched += len(list)
		if c.DryRun || len(list) == 0 {
			return nil
		}
		changed, err := q.updateEntries(ctx, list, func(e *Entry) db.Statement { return retryWaitingQuery.With(e.Message, e.N, db.Micros(now)) })
		res.Changed += len(changed)
		for _, e := range list {
			to[e.Destination] = true
		}
		return err
	})
	if err == nil && c.Message != 0 {
		err = q.requeueFailed(ctx, &c, &res, to, now)
	}
	if len(to) > 0 {
		err = errors.Join(err, queue.RequestDestinationRetry(ctx, q.DB, slices.Collect(maps.Keys(to)), now))
		q.wake(notify.Hold)
		q.wake(notify.Queue)
	}
	return res, err
}

// requeueFailed queues the failed deliveries of one message again.
func (q *Queue) requeueFailed(ctx context.Context, c *Command, res *Result, to map[string]bool, now time.Time) error {
	if c.Filter != (Filter{Message: c.Message}) {
		return nil
	}
	all, err := queue.ReadDeliveries(ctx, q.DB, c.Message)
	if err != nil {
		return err
	}
	about, err := q.messageInfo(ctx, c.Message, 0)
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.State != queue.Failed {
			continue
		}
		res.Matched++
		if c.DryRun {
			continue
		}
		done := false
		err := q.retryOnConflict(func() error {
			return q.DB.Tx(ctx, func(tx *db.Tx) error {
				destination, ok, err := queue.RequeueFailed(ctx, tx, q.Events, about, c.Message, d.N, now, math.MaxInt32, now)
				if done = ok; ok {
					to[destination] = true
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		if done {
			res.Changed++
		}
	}
	return nil
}
