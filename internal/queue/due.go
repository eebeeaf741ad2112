// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	headRows   = 200 // of what is due first, read in one look
	seekRows   = 500 // destinations sought in one look when the head is of no use
	forgetDead = time.Hour
)

var (
	head = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT $1`)
	seek = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination > $1
		ORDER BY destination, due_at LIMIT 1`)
)

// look takes over, finds what is due, makes room for it, and sets the next alarm.
func (q *Queue) look(ctx context.Context) error {
	now := q.o.Now()
	q.mu.Lock()
	q.alarm = now.Add(lookEvery)
	q.waiting = 0
	for _, d := range q.dests {
		if d.waits && !now.Before(d.until) {
			q.waiting++
		}
	}
	for _, d := range q.dests {
		switch {
		case now.Before(d.until):
			q.wakeAt(d.until)
		case (d.failures > 0 || d.slowed) && d.held == 0 && !d.waits &&
			(now.Sub(d.until) > forgetDead || len(q.dests) > 2*q.o.Places): // there may be any number of dead ones
			d.failures, d.slowed = 0, false
			q.tidy(d)
		default:
			if now.Before(d.rest) {
				q.wakeAt(d.rest)
			}
			q.start(d)
			q.fill(d)
		}
	}
	attend := q.attended.IsZero() || now.Sub(q.attended) >= lookEvery
	q.mu.Unlock()
	var attended error
	if attend {
		attended = q.attend(ctx, now)
	}
	err := errors.Join(attended, q.takeOver(ctx, now), q.reconcile(ctx, now), q.discover(ctx, now))
	if attend { // not at each look, which may come by the hundred
		q.mu.Lock()
		back := q.giveWay(now)
		q.mu.Unlock()
		q.beside(func() { q.release(back, now.Add(jitter(stillFor)), nil) })
	}
	return err
}

// waiting is a destination for which rows wait, and when the first is due.
type waiting struct {
	destination string
	due         int64
}

func scanWaiting(r db.Row) (w waiting, err error) { return w, r.Scan(&w.destination, &w.due) }

// discover finds the destinations for which something is due. The head of what
// is due may be all of destinations that can take no more; then it seeks from
// one destination to the next, which costs no more however much they have.
func (q *Queue) discover(ctx context.Context, now time.Time) error {
	first, err := db.All(ctx, q.o.DB, head.With(headRows), scanWaiting)
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
	if due == headRows {
		q.mu.Lock()
		cursor := q.cursor
		q.mu.Unlock()
		more, then, err := q.seek(ctx, cursor, now)
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
	q.found(rows)
	if q.cursor = next; next != "" {
		q.wakeAt(now)
	}
	return nil
}

// seek reads a page of destinations that have something due, and where the
// next page begins; "" after the last.
func (q *Queue) seek(ctx context.Context, cursor string, now time.Time) (found []waiting, next string, err error) {
	for range seekRows {
		w := waiting{}
		err := q.o.DB.One(ctx, seek.With(cursor), &w.destination, &w.due)
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

// found notes destinations with rows that are due. q.mu is held.
func (q *Queue) found(rows []waiting) {
	for _, w := range rows {
		q.await(q.dest(w.destination))
	}
	for _, w := range rows { // now that it is known how many share the places
		q.fill(q.dest(w.destination))
	}
}
