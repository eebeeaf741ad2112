// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

// An order on a message (Cancel, Fail, Retry) and an attempt of one of its deliveries may meet,
// here or on different nodes. Exactly one of them wins:
//
//	order                                        attempt
//	1 Block the message in this node's memory.   a Take skips the deliveries of blocked messages.
//	  Deliveries in an attempt stay as they are.
//	2 Commit one conditional update for each     b checkDelivery reads the row, unless it is known
//	  row: it must still be open.                  to be open and leased since less than a second.
//	3 Unblock. The leased deliveries, and those  c The agent makes the attempt.
//	  that a claim brings in that began before   d The outcome is a conditional update: the row must
//	  step 3, are checked before an attempt.       have our lease and the sequence that we know.
//
// On one node, 1 and a exclude each other by Queue.mu, so an order never changes a delivery in an
// attempt. On two nodes, an attempt may begin within the second of b after the order's commit. Then
// d changes nothing (errSuperseded): the order stands, although the mail may have gone out.
//
// The commands of operators (package admin) run in any process, so they leave leased rows to the
// node that has the lease: hold.go explains how.

// recheckAfter is how long a delivery may wait in memory before its row is checked again: another
// node may have cancelled it.
const recheckAfter = time.Second

var recipientNumbersQuery = db.SQL(`SELECT n FROM delivery WHERE message = $1 ORDER BY n`)

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

// overriddenSince reports whether an override ended since there were so many, or is running. A
// claim that ran meanwhile may have leased rows before the override changed them. q.mu is held.
func (q *Queue) overriddenSince(overrides int) bool {
	return q.overrides != overrides || q.dispatch.BlockedCount() > 0
}

// checkDelivery reports whether a delivery may still be attempted. Otherwise it settles, releases
// or forgets the delivery.
func (q *Queue) checkDelivery(ctx context.Context, d *Delivery, now time.Time) bool {
	if now.Sub(d.checkedAt) >= recheckAfter {
		there, held, err := q.leasedRow(ctx, d)
		if err != nil {
			q.o.Log.Error("a delivery could not be looked at", "message", d.Message, "n", d.N, "error", err)
			q.release([]*Delivery{d}, now.Add(dispatch.Jitter(errorDelay)), nil)
			return false
		}
		if held {
			q.release([]*Delivery{d}, time.Time{}, nil)
			return false
		}
		if !there {
			q.mu.Lock()
			q.dispatch.Forget(d)
			q.mu.Unlock()
			return false
		}
		d.checkedAt = now
	}
	if !now.Before(d.ExpiresAt) {
		q.recordOutcome(d, outcomeRecord{Outcome: d.expiredOutcome(), expired: true})
		return false
	}
	return true
}

var leasedRowQuery = db.SQL(`SELECT state, hold > 0 FROM delivery WHERE message = $1 AND n = $2 AND lease = $3 AND lease IS NOT NULL
	AND state IN ('scheduled', 'queued', 'deferred')`)

// leasedRow reports whether this node still has the lease of a delivery that is not final, and
// whether the delivery is to be held.
func (q *Queue) leasedRow(ctx context.Context, d *Delivery) (there, held bool, err error) {
	err = q.o.DB.One(ctx, leasedRowQuery.With(d.Message, d.N, d.Lease), &d.state, &held)
	return err == nil, held, db.IfNoRow(err, nil)
}
