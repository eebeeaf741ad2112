// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
)

// PendingMessage is a message that is ready to be queued in a commit of the caller. The caller runs
// its Mutation in that commit and then calls Finish.
type PendingMessage struct {
	ID db.ID

	message     *preparedMessage
	reservation *queue.Reservation
	charge      quota.Reservation
	condition   *db.Statement // the message is queued if it returns a row; nil: always queued
	queued      bool
	finished    bool
}

// newPending charges a message to the limits of its sender, as Limits.Reserve says, and reserves
// its deliveries in the queue.
func (o *Outbox) newPending(ctx context.Context, pc *preparedMessage, who quota.Consumer, decides *db.Statement) (*PendingMessage, error) {
	taken, err := o.Limits.Reserve(ctx, who, 1, len(pc.recipients))
	if err != nil {
		return nil, err
	}
	return &PendingMessage{ID: pc.row.id, message: pc, reservation: o.reserve(pc), charge: taken, condition: decides}, nil
}

// Mutation returns what the commit does for the message. It may run more than once.
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

// Finish releases the reservations if the message was not queued; err is the commit's error. It
// reports whether the message was queued. A second call does nothing.
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

// Cancel is Finish for a message whose Mutation never ran.
func (r *PendingMessage) Cancel() {
	if !r.finished {
		r.queued = false
		r.Finish(nil)
	}
}
