// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Pruning never deletes scheduled, waiting, held or leased deliveries, however old they are, nor
// messages with pending notices.

var (
	// lockDeliveriesQuery locks the deliveries of a message, so that Retry can't requeue one before
	// they are deleted.
	lockDeliveriesQuery = db.SQL(`SELECT state, updated_at, EXISTS (SELECT 1 FROM notice WHERE message = $1) FROM delivery
		WHERE message = $1 ORDER BY n {for_update}`)
	deleteDeliveriesQuery = db.SQL(`DELETE FROM delivery WHERE message = $1`)
	deleteAttemptsQuery   = db.SQL(`DELETE FROM attempt WHERE message = $1`)
	deleteRemarksQuery    = db.SQL(`DELETE FROM remark WHERE message = $1`)
	pruneAttemptsQuery    = db.SQL(`DELETE FROM attempt WHERE (message, n, attempt) IN (
			SELECT a.message, a.n, a.attempt FROM attempt a JOIN delivery d ON d.message = a.message AND d.n = a.n
			WHERE a.message >= $1 AND a.message < $2 AND d.updated_at < $3
				AND d.state IN ('delivered', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')
			ORDER BY a.message, a.n, a.attempt LIMIT $4)
		RETURNING message`)
)

// AllFinalBefore reports whether all deliveries became final before a time.
func AllFinalBefore(deliveries []DeliveryStatus, before time.Time) bool {
	for _, d := range deliveries {
		if !d.State.Final() || !d.UpdatedAt.Before(before) {
			return false
		}
	}
	return true
}

// LockFinal is for the Guard of the mutation that deletes a message. It sets over to whether
// AllFinalBefore still holds, which then stays true until the commit. It also sets over to false
// while a notice is pending.
func (q *Queue) LockFinal(b *db.Batch, message db.ID, before time.Time, over *bool) {
	*over = true
	b.Queue(lockDeliveriesQuery.With(message)).Each(func(r db.Row) error {
		var state State
		var updated int64
		var toTell bool
		err := r.Scan((*string)(&state), &updated, &toTell)
		if toTell || !state.Final() || updated >= db.Micros(before) {
			*over = false
		}
		return err
	})
}

// Delete queues the deletion of a message's deliveries and attempts, in a mutation in which
// LockFinal reported that they are over.
func (q *Queue) Delete(b *db.Batch, message db.ID) {
	b.Queue(deleteAttemptsQuery.With(message))
	b.Queue(deleteRemarksQuery.With(message))
	b.Queue(deleteDeliveriesQuery.With(message))
}

// pruneCursor is the position of a round of pruning attempts.
type pruneCursor struct {
	mu   sync.Mutex
	upTo db.ID
}

// PruneAttempts deletes, in one commit, at most limit attempts of deliveries that became final
// before a time, with their transcripts. It returns the number of deleted attempts; 0: there are no
// more.
func (q *Queue) PruneAttempts(ctx context.Context, before time.Time, limit int) (n int, err error) {
	q.pruneCursor.mu.Lock()
	defer q.pruneCursor.mu.Unlock()
	var last db.ID
	err = q.o.DB.Write(ctx, 0, &db.Mutation{Apply: func(b *db.Batch) {
		n, last = 0, q.pruneCursor.upTo
		b.Queue(pruneAttemptsQuery.With(q.pruneCursor.upTo, db.MinIDAt(before), db.Micros(before), limit)).Each(func(r db.Row) error {
			var id db.ID
			err := r.Scan(&id)
			n++
			last = max(last, id)
			return err
		})
	}})
	if err != nil {
		return 0, err
	}
	// Messages up to the cursor are skipped for the rest of this round.
	if q.pruneCursor.upTo = last; n == 0 {
		q.pruneCursor.upTo = 0
	}
	return n, nil
}

// RecordBounceOfDeleted handles a DSN about a delivery of API mail whose rows were deleted: it can
// only suppress the recipient. It reports whether the recipient was added to the account's list.
func (q *Queue) RecordBounceOfDeleted(ctx context.Context, account, message db.ID, n int, recipient address.Address, r Report) (bool, error) {
	s := StatusChange{
		MessageInfo: MessageInfo{Account: account, API: true}, ID: message, Recipient: recipient.String(), Status: Bounced,
		Code: r.Code, Enhanced: db.CleanText(r.Enhanced, 16), Reply: db.CleanText(r.Text, maxReply), Remote: db.CleanText(r.Remote, 255),
	}
	if !classifyReport(&s, r.Bounce).Suppress {
		return false, nil
	}
	add, ok := q.suppressStatement(&s, n, suppression.ReasonBounce, s.diagnostic())
	if !ok {
		return false, nil
	}
	listed, err := q.o.DB.Exec(ctx, add)
	return listed > 0, err
}

// RecordComplaintOfDeleted handles a complaint about a delivery of API mail whose rows were
// deleted: it suppresses the recipient and records one complaint event. It reports whether the
// complaint is new.
func (q *Queue) RecordComplaintOfDeleted(ctx context.Context, message db.ID, n int, recipient address.Address, r Report) (bool, error) {
	about, err := q.o.Describe(ctx, message)
	if err != nil {
		return false, err
	}
	c := updatedDelivery{StatusChange: StatusChange{MessageInfo: about, ID: message, Recipient: recipient.String(), Status: Complained}}
	add, ok := q.suppressStatement(&c.StatusChange, n, suppression.ReasonComplaint, r.Text)
	if !ok {
		return false, nil
	}
	listed := false
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, add)
		if listed = n > 0; err != nil || !listed {
			return err
		}
		events := c.complaintEvents(db.CleanText(r.Text, maxReply), db.CleanText(r.Remote, 255))
		return recordEvents(ctx, tx, q.o.Events, events[len(events)-1:]) // without delivery_status: no state is left to change
	})
	return listed && err == nil, err
}
