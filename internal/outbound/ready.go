// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/queue"
)

// Ready is a message that is ready to be queued in a commit of the caller's:
// its Job is run in that, and then Settle says what became of it.
type Ready struct {
	ID db.ID

	pc      *parcel
	plan    *queue.Plan
	taken   limit.Spent
	decides *db.Statement // returns a row if it is queued; nil: it is
	queued  bool
	settled bool
}

// ready counts a message for the limits of who sends it, as Limits.Send says, and
// reserves places for its deliveries.
func (o *Outbox) ready(ctx context.Context, pc *parcel, who limit.Who, decides *db.Statement) (*Ready, error) {
	taken, err := o.Limits.Send(ctx, who, 1, len(pc.to))
	if err != nil {
		return nil, err
	}
	return &Ready{ID: pc.row.id, pc: pc, plan: o.plan(pc), taken: taken, decides: decides}, nil
}

// Job is what the commit does for the message. It may run more than once.
func (r *Ready) Job() *db.Job {
	return &db.Job{
		Guard: func(b *db.Batch) {
			if r.queued = r.decides == nil; !r.queued {
				b.Queue(*r.decides).Each(func(db.Row) error {
					r.queued = true
					return nil
				})
			}
		},
		Apply: func(b *db.Batch) {
			if r.queued {
				r.pc.queue(b, r.plan)
			}
		},
		AfterCommit: func() {
			if r.queued {
				r.plan.Committed()
			}
		},
	}
}

// Settle gives back what was taken for the message if it was not queued; err is
// the commit's. It reports whether it was queued. A second call does nothing.
func (r *Ready) Settle(err error) (queued bool) {
	switch {
	case r.settled:
	case err != nil:
		r.plan.Abandon()
		spent{r.taken}.settle(err)
	case !r.queued:
		r.plan.Drop()
		r.taken.GiveBack()
	}
	r.settled = true
	return err == nil && r.queued
}

// Drop is Settle for a message whose Job was never run.
func (r *Ready) Drop() {
	if !r.settled {
		r.queued = false
		r.Settle(nil)
	}
}
