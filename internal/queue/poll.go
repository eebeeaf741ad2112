// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	firstDueRows           = 200 // of what is due first, read in one look
	maxDestinationScan     = 500 // destinations sought in one look when the head is of no use
	forgetUnreachableAfter = time.Hour
)

var (
	firstDueQuery = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT $1`)
	nextDestinationQuery = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination > $1
		ORDER BY destination, due_at LIMIT 1`)
)

// poll takes over, finds what is due, makes room for it, and sets the next alarm.
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
			(now.Sub(d.backoffUntil) > forgetUnreachableAfter || len(q.dests) > 2*q.o.Capacity): // there may be any number of dead ones
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
	if attend { // not at each look, which may come by the hundred
		q.mu.Lock()
		back := q.preempt(now)
		q.mu.Unlock()
		q.startTask(func() { q.release(back, now.Add(jitter(stallTimeout)), nil) })
	}
	return err
}

// dueDestination is a destination for which rows wait, and when the first is due.
type dueDestination struct {
	destination string
	due         int64
}

func scanDueDestination(r db.Row) (w dueDestination, err error) {
	return w, r.Scan(&w.destination, &w.due)
}

// findDue finds the destinations for which something is due. The head of what
// is due may be all of destinations that can take no more; then it seeks from
// one destination to the next, which costs no more however much they have.
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

// scanDestinations reads a page of destinations that have something due, and where the
// next page begins; "" after the last.
func (q *Queue) scanDestinations(ctx context.Context, cursor string, now time.Time) (found []dueDestination, next string, err error) {
	for range maxDestinationScan {
		w := dueDestination{}
		err := q.o.DB.One(ctx, nextDestinationQuery.With(cursor), &w.destination, &w.due)
		if errors.Is(err, db.ErrNoRow) {
			return found, "", nil
		}
		if err != nil {
			return nil, "", err
		}
		cursor = w.destination
		if w.due <= db.Micros(now) {
			found = append(found, w)
		}
	}
	return found, cursor, nil
}

// addDue notes destinations with rows that are due. q.mu is held.
func (q *Queue) addDue(rows []dueDestination) {
	for _, w := range rows {
		q.markWaiting(q.dest(w.destination))
	}
	for _, w := range rows { // now that it is known how many share the places
		q.refill(q.dest(w.destination))
	}
}
