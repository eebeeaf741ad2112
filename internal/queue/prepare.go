// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

// errorDelay is how long an internal error delays a message's deliveries.
const errorDelay = time.Minute

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

// failUnprepared fails or delays the deliveries of a message that can't be loaded.
func (q *Queue) failUnprepared(ds []*Delivery, err error) {
	var f *fault.Error
	if errors.As(err, &f) && (f.Kind == fault.NotFound || f.Kind == fault.Denied) {
		if f.Kind == fault.NotFound && f.Cause != nil { // an internal fault
			q.o.Log.Error("a message can't be sent any more", "message", ds[0].Message, "error", err)
		}
		for _, d := range ds {
			q.recordOutcome(d, outcomeRecord{Outcome: Outcome{State: Failed, Enhanced: "5.3.0", Stage: "local", Reply: f.Message}})
		}
		return
	}
	q.o.Log.Error("a message could not be prepared for sending", "message", ds[0].Message, "error", err)
	q.release(ds, q.o.Now().Add(dispatch.Jitter(errorDelay)), nil)
}
