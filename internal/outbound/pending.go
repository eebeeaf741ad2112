// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
)

// PendingMessage is a message that is ready to be queued in a commit of the caller's:
// its Job is run in that, and then Settle says what became of it.
type PendingMessage struct {
	ID db.ID

	message     *preparedMessage
	reservation *queue.Reservation
	charge      quota.Reservation
	condition   *db.Statement // returns a row if it is queued; nil: it is
	queued      bool
	finished    bool
}

// newPending counts a message for the limits of who sends it, as Limits.Send says, and
// reserves places for its deliveries.
func (o *Outbox) newPending(ctx context.Context, pc *preparedMessage, who quota.Consumer, decides *db.Statement) (*PendingMessage, error) {
	taken, err := o.Limits.Reserve(ctx, who, 1, len(pc.recipients))
	if err != nil {
		return nil, err
	}
	return &PendingMessage{ID: pc.row.id, message: pc, reservation: o.reserve(pc), charge: taken, condition: decides}, nil
}

// Mutation is what the commit does for the message. It may run more than once.
func (r *PendingMessage) Mutation() *db.Mutation {
	return &db.Mutation{
		Guard: func(b *db.Batch) {
			if r.queued = r.condition == nil; !r.queued {
				b.Queue(*r.condition).Each(func(db.Row) error {
					r.queued = true
					return nil
				})
			}
		},
		Apply: func(b *db.Batch) {
			if r.queued {
				r.message.addStatements(b, r.reservation)
			}
		},
		AfterCommit: func() {
			if r.queued {
				r.reservation.Dispatch()
			}
		},
	}
}

// Finish gives back what was taken for the message if it was not queued; err is
// the commit's. It reports whether it was queued. A second call does nothing.
func (r *PendingMessage) Finish(err error) (queued bool) {
	switch {
	case r.finished:
	case err != nil:
		r.reservation.Abandon()
		charges{r.charge}.refundOnError(err)
	case !r.queued:
		r.reservation.Cancel()
		r.charge.Release()
	}
	r.finished = true
	return err == nil && r.queued
}

// Cancel is Settle for a message whose Job was never run.
func (r *PendingMessage) Cancel() {
	if !r.finished {
		r.queued = false
		r.Finish(nil)
	}
}
