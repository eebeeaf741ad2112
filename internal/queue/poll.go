// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	firstDueRows           = 200 // rows read first per poll, ordered by due time
	maxDestinationScan     = 500 // destinations scanned per poll if all first rows are due
	forgetUnreachableAfter = time.Hour
)

var (
	firstDueQuery = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT $1`)
	nextDestinationQuery = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination > $1
		ORDER BY destination, due_at LIMIT 1`)
)

// poll takes over expired leases, finds due deliveries, frees slots for them, and sets the next
// wake time.
func (q *Queue) poll(ctx context.Context) error {
	now := q.o.Now()
	q.mu.Lock()
	q.nextWake = now.Add(pollInterval)
	q.backlogged = 0
	for _, d := range q.dests {
		if d.hasBacklog && !now.Before(d.backoffUntil) {
			q.backlogged++
		}
	}
	for _, d := range q.dests {
		switch {
		case now.Before(d.backoffUntil):
			q.wakeAt(d.backoffUntil)
		case (d.failures > 0 || d.throttled) && d.slotsUsed == 0 && !d.hasBacklog &&
			(now.Sub(d.backoffUntil) > forgetUnreachableAfter || len(q.dests) > 2*q.o.Capacity): // any number may be dead
			d.failures, d.throttled = 0, false
			q.removeIdleDestination(d)
		default:
			if now.Before(d.pausedUntil) {
				q.wakeAt(d.pausedUntil)
			}
			q.startSessions(d)
			q.refill(d)
		}
	}
	attend := q.holdsReadAt.IsZero() || now.Sub(q.holdsReadAt) >= pollInterval
	q.mu.Unlock()
	var attended error
	if attend {
		attended = q.applyOperatorRequests(ctx, now)
	}
	err := errors.Join(attended, q.takeOver(ctx, now), q.reconcile(ctx, now), q.findDue(ctx, now))
	if attend { // not on each poll: there may be hundreds in a row
		q.mu.Lock()
		back := q.preempt(now)
		q.mu.Unlock()
		q.startTask(func() { q.release(back, now.Add(jitter(stallTimeout)), nil) })
	}
	return err
}

// dueDestination is a destination with waiting rows, and the time when the first is due.
type dueDestination struct {
	destination string
	due         int64
}

func scanDueDestination(r db.Row) (w dueDestination, err error) {
	return w, r.Scan(&w.destination, &w.due)
}

// findDue finds the destinations that have due deliveries. All of the first due rows may belong to
// destinations that can take no more. It then scans the destinations one by one, at a cost that
// does not depend on their number of rows.
func (q *Queue) findDue(ctx context.Context, now time.Time) error {
	first, err := db.All(ctx, q.o.DB, firstDueQuery.With(firstDueRows), scanDueDestination)
	if err != nil {
		return err
	}
	due := 0
	for _, w := range first {
		if w.due <= db.Micros(now) {
			due++
		}
	}
	rows, next := first[:due], ""
	if due == firstDueRows {
		q.mu.Lock()
		cursor := q.cursor
		q.mu.Unlock()
		more, then, err := q.scanDestinations(ctx, cursor, now)
		if err != nil {
			return err
		}
		rows, next = append(rows, more...), then
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if due < len(first) {
		q.wakeAt(db.Time(first[due].due))
	}
	q.addDue(rows)
	if q.cursor = next; next != "" {
		q.wakeAt(now)
	}
	return nil
}

// scanDestinations returns a page of destinations with due deliveries, and where the next page
// begins; "" after the last.
func (q *Queue) scanDestinations(ctx context.Context, cursor string, now time.Time) (found []dueDestination, next string, err error) {
	for range maxDestinationScan {
		name, due, err := NextWaiting(ctx, q.o.DB, cursor)
		if name == "" || err != nil {
			return found, "", err
		}
		cursor = name
		if !due.After(now) {
			found = append(found, dueDestination{name, db.Micros(due)})
		}
	}
	return found, cursor, nil
}

// NextWaiting returns the first destination after one that has waiting deliveries, and when the
// first of them is due; "" for none.
func NextWaiting(ctx context.Context, r db.Reader, after string) (name string, due time.Time, err error) {
	var at int64
	err = r.One(ctx, nextDestinationQuery.With(after), &name, &at)
	if errors.Is(err, db.ErrNoRow) {
		return "", time.Time{}, nil
	}
	return name, db.Time(at), err
}

// addDue records destinations with due rows. q.mu is held.
func (q *Queue) addDue(rows []dueDestination) {
	for _, w := range rows {
		q.markWaiting(q.dest(w.destination))
	}
	for _, w := range rows { // the number of destinations that share the slots is now known
		q.refill(q.dest(w.destination))
	}
}
