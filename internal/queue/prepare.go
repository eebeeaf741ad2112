// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

const (
	// recheckAfter is how long a delivery may wait in memory before its row is checked again:
	// another node may have cancelled it.
	recheckAfter = time.Second
	// errorDelay is how long an internal error delays a message's deliveries.
	errorDelay = time.Minute
)

// prepareTransaction completes a transaction for its delivery agent. It returns false if no
// delivery is left to attempt.
func (q *Queue) prepareTransaction(ctx context.Context, c *Transaction) bool {
	now := q.o.Now()
	c.Deliveries = slices.DeleteFunc(c.Deliveries, func(d *Delivery) bool { return !q.checkDelivery(ctx, d, now) })
	if len(c.Deliveries) == 0 {
		return false
	}
	first := c.Deliveries[0]
	mail, err := q.messages.acquire(ctx, first.Message)
	if err != nil {
		q.failUnprepared(c.Deliveries, err)
		return false
	}
	c.Mail = mail
	c.From = mail.Sender
	if mail.ReturnDomain != "" {
		c.From = q.o.Key.ReturnPath(int64(first.Message), first.N) + "@" + mail.ReturnDomain
	}
	return true
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
		q.settle(d, outcomeRecord{Outcome: d.expiredOutcome(), expired: true})
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
	if errors.Is(err, db.ErrNoRow) {
		return false, false, nil
	}
	return err == nil, held, err
}

// failUnprepared fails or delays the deliveries of a message that can't be loaded.
func (q *Queue) failUnprepared(ds []*Delivery, err error) {
	var f *fault.Error
	if errors.As(err, &f) && (f.Kind == fault.NotFound || f.Kind == fault.Denied) {
		if f.Kind == fault.NotFound && f.Cause != nil { // an internal fault
			q.o.Log.Error("a message can't be sent any more", "message", ds[0].Message, "error", err)
		}
		for _, d := range ds {
			q.settle(d, outcomeRecord{Outcome: Outcome{State: Failed, Enhanced: "5.3.0", Stage: "local", Reply: f.Message}})
		}
		return
	}
	q.o.Log.Error("a message could not be prepared for sending", "message", ds[0].Message, "error", err)
	q.release(ds, q.o.Now().Add(dispatch.Jitter(errorDelay)), nil)
}
