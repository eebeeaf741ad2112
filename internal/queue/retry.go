// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// retryLifetime is how long a retried delivery is tried if it had expired.
const retryLifetime = 72 * time.Hour

// A customer may retry a delivery at any time until it had freeRetries attempts. After that, the
// wait is retryCooldown from the last attempt. This spares hosts that ask for a delay, and limits
// the number of stored transcripts.
const (
	freeRetries   = 5
	retryCooldown = 5 * time.Minute
)

var (
	requeueFailedQuery = db.SQL(`UPDATE delivery SET state = 'queued', due_at = $3, sequence = sequence + 1, updated_at = $3, delay_report_at = 0,
			expires_at = CASE WHEN expires_at <= $3 THEN $4 ELSE expires_at END
		WHERE message = $1 AND n = $2 AND state = 'failed' AND (attempts < $5 OR updated_at <= $6)
		RETURNING ` + changedColumns)
	retryNowQuery = db.SQL(`UPDATE delivery SET due_at = $3
		WHERE message = $1 AND n = $2 AND state = 'deferred' AND (lease IS NULL OR lease = 0) AND (attempts < $4 OR updated_at <= $5)
		RETURNING ` + changedColumns)
	retryableQuery = db.SQL(`SELECT updated_at FROM delivery WHERE message = $1 AND (state = 'failed' OR state = 'deferred' AND (lease IS NULL OR lease = 0))
		ORDER BY updated_at LIMIT 1`)
)

// Retry makes failed and deferred deliveries due now, and returns their number. It returns a
// fault.Conflict if there are none, and a fault.RateLimited if they had many attempts and the last
// one was just now.
func (q *Queue) Retry(ctx context.Context, message db.ID) (int, error) {
	var to []string
	now := q.o.Now()
	cooledAt := now.Add(-retryCooldown)
	n, err := q.override(ctx, message, func(tx *db.Tx, about MessageInfo, n int) (bool, error) {
		destination, ok, err := RequeueFailed(ctx, tx, q.o.Events, about, message, n, now, freeRetries, cooledAt)
		if !ok && err == nil {
			var d *updatedDelivery
			if d, err = updateDelivery(ctx, tx, retryNowQuery.With(message, n, db.Micros(now), freeRetries, db.Micros(cooledAt))); d != nil {
				destination, ok = d.destination, true
			}
		}
		if ok {
			to = append(to, destination)
		}
		return ok, err
	})
	if err == nil && n == 0 {
		err = q.retryError(ctx, message, now)
	}
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range to {
		if !q.dispatch.RetryDestination(name) {
			q.o.Hub.Wake(notify.Key{Kind: notify.Queue})
		}
	}
	return n, nil
}

// retryError returns the reason why no delivery of a message was retried.
func (q *Queue) retryError(ctx context.Context, message db.ID, now time.Time) error {
	var last time.Time
	if err := q.o.DB.One(ctx, retryableQuery.With(message), db.TimeScanner(&last)); err != nil {
		return db.IfNoRow(err, fault.New(fault.Conflict, "not_retryable", "Nothing of this message has failed or is deferred."))
	}
	f := fault.New(fault.RateLimited, "retried_just_now", "Delivery was tried just now, and %d times or more in all. Retry it %d minutes after the last attempt.", freeRetries, retryCooldown/time.Minute)
	f.RetryAfter = max(time.Second, last.Add(retryCooldown).Sub(now))
	return f
}

// RequeueFailed queues a failed delivery again, and records the event. ok is false if it is not
// failed, or had freeAttempts attempts and the last one was after cooledAt.
func RequeueFailed(ctx context.Context, tx *db.Tx, events *event.Log, about MessageInfo, message db.ID, n int, now time.Time, freeAttempts int, cooledAt time.Time) (destination string, ok bool, err error) {
	c, err := changeState(ctx, tx, events, about,
		requeueFailedQuery.With(message, n, db.Micros(now), db.Micros(now.Add(retryLifetime)), freeAttempts, db.Micros(cooledAt)), message, Queued)
	if c == nil {
		return "", false, err
	}
	return c.destination, true, err
}
