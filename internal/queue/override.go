// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
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
	recipientNumbersQuery = db.SQL(`SELECT n FROM delivery WHERE message = $1 ORDER BY n`)
	finishQuery           = db.SQL(`UPDATE delivery SET state = $3, lease = NULL, hold = 0, sequence = sequence + 1,
			reply = CASE WHEN $4 = '' THEN reply ELSE $4 END, updated_at = $5
		WHERE message = $1 AND n = $2 AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING ` + changedColumns)
	requeueFailedQuery = db.SQL(`UPDATE delivery SET state = 'queued', due_at = $3, sequence = sequence + 1, updated_at = $3, delay_report_at = 0,
			expires_at = CASE WHEN expires_at <= $3 THEN $4 ELSE expires_at END
		WHERE message = $1 AND n = $2 AND state = 'failed' AND (attempts < $5 OR updated_at <= $6)
		RETURNING ` + changedColumns)
	retryNowQuery = db.SQL(`UPDATE delivery SET due_at = $3
		WHERE message = $1 AND n = $2 AND state = 'deferred' AND (lease IS NULL OR lease = 0) AND (attempts < $4 OR updated_at <= $5)
		RETURNING ` + changedColumns)
	retryableQuery = db.SQL(`SELECT updated_at FROM delivery WHERE message = $1 AND (state = 'failed' OR state = 'deferred' AND (lease IS NULL OR lease = 0))
		ORDER BY updated_at LIMIT 1`)
	rescheduleQuery = db.SQL(`UPDATE delivery SET due_at = $2, expires_at = $3, updated_at = $4,
			delay_report_at = CASE WHEN delay_report_at > 0 THEN $2 + (delay_report_at - due_at) ELSE 0 END
		WHERE message = $1 AND state = 'scheduled' AND (lease IS NULL OR lease = 0)`)
)

// Cancel ends the scheduled, queued and deferred deliveries of a message as cancelled, and returns
// their number. A running attempt keeps its outcome. Cancel returns a fault.Conflict if no delivery
// can be cancelled. An attempt on another node may have begun a moment before: the state is then
// cancelled, although the recipient may get the mail.
func (q *Queue) Cancel(ctx context.Context, message db.ID) (int, error) {
	n, err := q.finish(ctx, message, Cancelled, "")
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "not_cancellable", "Nothing of this message is left that can be cancelled.")
	}
	return n, err
}

// Fail ends the open deliveries of a message as failed, and returns their number: an operator drops
// them, or their account is suspended. A running attempt keeps its outcome.
func (q *Queue) Fail(ctx context.Context, message db.ID, reason string) (int, error) {
	return q.finish(ctx, message, Failed, db.CleanText(reason, maxReply))
}

// finish ends the open deliveries that are not in an attempt.
func (q *Queue) finish(ctx context.Context, message db.ID, state State, reason string) (int, error) {
	return q.override(ctx, message, func(tx *db.Tx, about MessageInfo, n int) (bool, error) {
		s, err := changeState(ctx, tx, q.o.Events, about, finishQuery.With(message, n, string(state), reason, db.Micros(q.o.Now())), message, state)
		return s != nil, err
	})
}

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
		if !q.dispatch.Retry(name) {
			q.o.Hub.Wake(notify.Key{Kind: notify.Queue})
		}
	}
	return n, nil
}

// retryError returns the reason why no delivery of a message was retried.
func (q *Queue) retryError(ctx context.Context, message db.ID, now time.Time) error {
	var last int64
	err := q.o.DB.One(ctx, retryableQuery.With(message), &last)
	if errors.Is(err, db.ErrNoRow) {
		return fault.New(fault.Conflict, "not_retryable", "Nothing of this message has failed or is deferred.")
	}
	if err != nil {
		return err
	}
	f := fault.New(fault.RateLimited, "retried_just_now", "Delivery was tried just now, and %d times or more in all. Retry it %d minutes after the last attempt.", freeRetries, retryCooldown/time.Minute)
	f.RetryAfter = max(time.Second, db.Time(last).Add(retryCooldown).Sub(now))
	return f
}

// Reschedule moves the deliveries of a message that are still scheduled. also, if not nil, runs in
// the same transaction. Reschedule returns a fault.Conflict if there are none.
func (q *Queue) Reschedule(ctx context.Context, message db.ID, due, expires time.Time, also func(*db.Tx) error) error {
	err := q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, rescheduleQuery.With(message, db.Micros(due), db.Micros(expires), db.Micros(q.o.Now())))
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "not_scheduled", "Nothing of this message is still scheduled.")
		}
		if err == nil && also != nil {
			err = also(tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeAt(due)
	return nil
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

// override changes the deliveries of a message that are not in an attempt. Meanwhile no session
// takes one of them, and leased deliveries check their row before the next attempt. So exactly one
// of the change and the attempt wins.
func (q *Queue) override(ctx context.Context, message db.ID, each func(tx *db.Tx, about MessageInfo, n int) (bool, error)) (int, error) {
	all, err := db.All(ctx, q.o.DB, recipientNumbersQuery.With(message), func(r db.Row) (n int, err error) { return n, r.Scan(&n) })
	if err != nil || len(all) == 0 {
		return 0, err
	}
	about, err := q.o.Describe(ctx, message)
	if err != nil {
		return 0, err
	}
	attempted := map[int]bool{}
	q.mu.Lock()
	q.dispatch.Block(message)
	for _, n := range all {
		d := q.dispatch.Find(deliveryKey{Message: message, N: n})
		attempted[n] = d != nil && (d.InAttempt() || d.Lease == 0)
	}
	q.mu.Unlock()
	defer q.endOverride(message, all)
	count := 0
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		count = 0
		for _, n := range all {
			if attempted[n] {
				continue
			}
			changed, err := each(tx, about, n)
			if err != nil {
				return err
			}
			if changed {
				count++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}

func (q *Queue) endOverride(message db.ID, all []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch.Unblock(message)
	q.recheckDeliveries(message, all)
}

// recheckDeliveries makes leased deliveries check their row before the next attempt. q.mu is held.
func (q *Queue) recheckDeliveries(message db.ID, all []int) {
	q.overrides++
	for _, n := range all {
		if d := q.dispatch.Find(deliveryKey{Message: message, N: n}); d != nil && !d.InAttempt() {
			d.checkedAt = time.Time{}
			q.dispatch.StartSessions(d.Destination)
		}
	}
}

// overriddenSince reports whether an override ended since there were so many, or is running. A claim
// that ran meanwhile may have leased rows before the override changed them. q.mu is held.
func (q *Queue) overriddenSince(overrides int) bool {
	return q.overrides != overrides || q.dispatch.Blocked() > 0
}

// updatedDelivery is a delivery after a conditional update.
type updatedDelivery struct {
	StatusChange
	destination string
}

// updateDelivery runs a conditional update. It returns nil if no row matched.
func updateDelivery(ctx context.Context, tx *db.Tx, s db.Statement) (*updatedDelivery, error) {
	var c updatedDelivery
	err := tx.One(ctx, s, &c.Account, &c.Recipient, &c.destination, &c.Attempts, &c.Sequence,
		&c.Code, &c.Enhanced, &c.Reply, &c.Remote)
	if errors.Is(err, db.ErrNoRow) {
		return nil, nil
	}
	return &c, err
}

// changeState runs a conditional update and records one delivery_status event.
func changeState(ctx context.Context, tx *db.Tx, events *event.Log, about MessageInfo, s db.Statement, message db.ID, state State) (*updatedDelivery, error) {
	c, err := updateDelivery(ctx, tx, s)
	if err != nil || c == nil {
		return nil, err
	}
	c.MessageInfo, c.ID, c.Status = about, message, state
	c.Sequence--
	return c, recordEvents(ctx, tx, events, c.Events(nil))
}

func recordEvents(ctx context.Context, tx *db.Tx, log *event.Log, events []event.Input) error {
	for _, e := range events {
		if err := log.Record(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}
