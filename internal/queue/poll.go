// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

const (
	firstDueRows       = 200 // rows read first per poll, ordered by due time
	maxDestinationScan = 500 // destinations scanned per poll if all first rows are due
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
	q.dispatch.Poll()
	attend := q.holdsReadAt.IsZero() || now.Sub(q.holdsReadAt) >= pollInterval
	q.mu.Unlock()
	var attended error
	if attend {
		attended = q.applyOperatorRequests(ctx, now)
	}
	err := errors.Join(attended, q.takeOver(ctx), q.reconcile(ctx, now), q.findDue(ctx, now))
	if attend { // not on each poll: there may be hundreds in a row
		q.mu.Lock()
		preempted := q.dispatch.Preempt()
		q.mu.Unlock()
		q.startTask(func() { q.release(preempted, now.Add(dispatch.Jitter(dispatch.StallTimeout)), nil) })
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
	var names []string
	for _, w := range first[:due] {
		names = append(names, w.destination)
	}
	next := ""
	if due == firstDueRows {
		more, then, err := q.scanDestinations(ctx, q.cursor, now)
		if err != nil {
			return err
		}
		names, next = append(names, more...), then
	}
	q.cursor = next
	q.mu.Lock()
	defer q.mu.Unlock()
	if due < len(first) {
		q.wakeAt(db.Time(first[due].due))
	}
	q.dispatch.AddBacklog(names...)
	if next != "" {
		q.wakeAt(now)
	}
	return nil
}

// scanDestinations returns a page of destinations with due deliveries, and where the next page
// begins; "" after the last.
func (q *Queue) scanDestinations(ctx context.Context, cursor string, now time.Time) (found []string, next string, err error) {
	for range maxDestinationScan {
		name, due, err := NextWaitingDestination(ctx, q.o.DB, cursor)
		if name == "" || err != nil {
			return found, "", err
		}
		cursor = name
		if !due.After(now) {
			found = append(found, name)
		}
	}
	return found, cursor, nil
}

// NextWaitingDestination returns the first destination after one that has waiting deliveries, and
// when the first of them is due; "" for none.
func NextWaitingDestination(ctx context.Context, r db.Reader, after string) (name string, due time.Time, err error) {
	err = r.One(ctx, nextDestinationQuery.With(after), &name, db.TimeScanner(&due))
	return name, due, db.IfNoRow(err, nil)
}
