// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

var (
	// The rows of due are locked, so the update needs no further conditions on them. With
	// conditions that an index covers, PostgreSQL may search all waiting rows again. The same holds
	// wherever a statement changes some of many rows; TestExplain checks it.
	claimQuery = db.SQL(`WITH due AS MATERIALIZED (SELECT message, n FROM delivery
			WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination = $2 AND due_at <= $3
			ORDER BY due_at LIMIT $4 {skip_locked})
		UPDATE delivery SET lease = $1 WHERE (message, n) IN (SELECT message, n FROM due)
		RETURNING message, n, account, recipient, kind, state, due_at, expires_at, attempts, sequence,
			code, enhanced, reply, remote_host, notify, orcpt, offers_unsubscribe`)
	promoteQuery = db.SQL(`UPDATE delivery SET state = 'queued', sequence = $4, updated_at = $5
		WHERE message = $1 AND n = $2 AND lease = $3 AND sequence = $6 AND state = 'scheduled'`)
)

// startClaim starts a claim of a destination's waiting rows. q.mu is held.
func (q *Queue) startClaim(c *claim) {
	q.work.Add(1)
	if c.Held {
		go q.holdWaitingRows(c, q.holds.destinationHold(c.Destination))
		return
	}
	lease, _ := q.usableLease()
	go q.claim(&pendingClaim{claim: c, lease: lease, overrides: q.overrides}, q.o.Now())
}

// errLeaseExpired means that the node's lease expired before the claim.
var errLeaseExpired = errors.New("the node's lease has expired")

// pendingClaim is a running claim of waiting rows.
type pendingClaim struct {
	*claim
	lease     db.ID
	overrides int // Queue.overrides at the start
}

func (q *Queue) claim(f *pendingClaim, now time.Time) {
	defer q.work.Done()
	var got []*Delivery
	batcher := fnv.New64a()
	_, _ = batcher.Write([]byte(f.Destination))
	ours := false
	err := q.o.DB.Write(q.writeCtx, db.ID(batcher.Sum64()>>1), &db.Mutation{Guard: func(b *db.Batch) {
		got = got[:0]
		// Other nodes may have taken over the lease while the database was unreachable. They would
		// not look for its rows again.
		if ours = q.o.Node.OwnsLease(f.lease); !ours {
			return
		}
		b.Queue(claimQuery.With(f.lease, f.Destination, db.Micros(now), f.Slots)).Each(func(r db.Row) error {
			d, err := scanDelivery(r, f, now)
			got = append(got, d)
			return err
		})
	}})
	slices.SortFunc(got, func(a, b *Delivery) int { return a.due.Compare(b.due) })
	if err == nil && !ours {
		err = errLeaseExpired
	}
	if err != nil {
		q.o.Log.Error("claiming what is due failed", "destination", f.Destination, "error", err)
		got = nil
	}
	scheduled := q.applyClaim(f, got, err)
	for _, d := range scheduled {
		q.startWrite(func() { q.promote(d) })
	}
}

func scanDelivery(r db.Row, f *pendingClaim, now time.Time) (*Delivery, error) {
	d := &Delivery{Entry: dispatch.Entry{Destination: f.Destination, Lease: f.lease}, checkedAt: now}
	var state string
	var due, expires int64
	var notify int
	err := r.Scan(&d.Message, &d.N, &d.Account, &d.Recipient, &d.Kind, &state, &due, &expires, &d.Attempts, &d.sequence,
		&d.lastOutcome.Code, &d.lastOutcome.Enhanced, &d.lastOutcome.Reply, &d.lastOutcome.Remote, &notify, &d.Original, &d.offersUnsubscribe)
	d.Notify, d.senderNotify = smtpclient.Notify(notify&notifyBits), SenderNotifyFromColumn(notify)
	d.Shareable = d.Kind == kindEnvelope
	d.state, d.due, d.ExpiresAt = State(state), db.Time(due), db.Time(expires)
	return d, err
}

// applyClaim admits the claimed deliveries. It returns the scheduled ones, which must be promoted
// first.
func (q *Queue) applyClaim(f *pendingClaim, got []*Delivery, err error) (scheduled []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.markUncertain()
	}
	var held []*Delivery
	for _, d := range got {
		if q.overriddenSince(f.overrides) {
			d.checkedAt = time.Time{}
		}
		if d.ExpiresAt.Before(q.startedAt) {
			d.ExpiresAt = q.startedAt.Add(expiredGrace)
		}
		q.admit(d)
		switch {
		case q.holds.deliveryHold(d.Destination, d.Account) != 0:
			held = append(held, d)
		case d.state == Scheduled:
			scheduled = append(scheduled, d)
		default:
			q.dispatch.Enqueue(d)
		}
	}
	q.releaseHeld(held, nil)
	q.dispatch.EndClaim(f.claim, len(got) < f.Slots, err == nil)
	return scheduled
}

// promote turns a due scheduled delivery into a queued one. It ends the delivery as suppressed if
// the recipient is now on the suppression list.
func (q *Queue) promote(d *Delivery) {
	about, err := q.o.Describe(q.writeCtx, d.Message)
	if fault.Is(err, fault.NotFound) {
		about, err = MessageInfo{Account: d.Account}, nil // Prepare will fail likewise
	}
	var why suppression.Reason
	if err == nil {
		why, err = q.suppressionReason(q.writeCtx, d, about)
	}
	if err != nil {
		q.o.Log.Error("a scheduled message could not be read", "message", d.Message, "error", err)
		q.releaseBatch([]*Delivery{d}, q.o.Now().Add(dispatch.Jitter(errorDelay)), nil)
		return
	}
	to := Queued
	if why != "" {
		to = Suppressed
	}
	for again := true; again; {
		var job *db.Mutation
		if job, err = q.promoteMutation(d, about, why); err == nil {
			err = q.write(d.Message, job)
		}
		again = errors.Is(err, errSuperseded) && q.reloadSequence(d)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil { // cancelled, the queue has ended, or an earlier write was committed after all
		q.markUncertain()
		q.dispatch.Forget(d)
		return
	}
	d.sequence++
	if d.state = to; d.state == Suppressed {
		q.dispatch.Forget(d)
		return
	}
	q.dispatch.Enqueue(d)
}

func (q *Queue) promoteMutation(d *Delivery, about MessageInfo, why suppression.Reason) (*db.Mutation, error) {
	data := StatusChange{MessageInfo: about, ID: d.Message, Recipient: d.Recipient, Status: Queued, Sequence: d.sequence}
	now := db.Micros(q.o.Now())
	update := promoteQuery.With(d.Message, d.N, d.Lease, d.sequence+1, now, d.sequence)
	if why != "" {
		data.Status, data.Reason, data.Reply = Suppressed, string(why), suppressedReply(why)
		update = suppressScheduledQuery.With(d.Message, d.N, d.Lease, d.sequence+1, now, data.Reply, d.sequence)
	}
	also, err := q.eventStatements(data.Events(nil))
	return q.conditionalMutation(update, also, true), err
}
