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

// What is scheduled, waits, is held or in hand is never deleted, however old it
// is; nor is a message of which a sender is still to be told.

var (
	// ends locks the deliveries of a message, so that none of them comes to
	// life again (Retry) before they are deleted.
	ends = db.SQL(`SELECT state, updated_at, EXISTS (SELECT 1 FROM notice WHERE message = $1) FROM delivery
		WHERE message = $1 ORDER BY n {for_update}`)
	deleteDeliveries = db.SQL(`DELETE FROM delivery WHERE message = $1`)
	deleteAttempts   = db.SQL(`DELETE FROM attempt WHERE message = $1`)
	deleteRemarks    = db.SQL(`DELETE FROM remark WHERE message = $1`)
	pruneAttempts    = db.SQL(`DELETE FROM attempt WHERE (message, n, attempt) IN (
			SELECT a.message, a.n, a.attempt FROM attempt a JOIN delivery d ON d.message = a.message AND d.n = a.n
			WHERE a.message >= $1 AND a.message < $2 AND d.updated_at < $3
				AND d.state IN ('delivered', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')
			ORDER BY a.message, a.n, a.attempt LIMIT $4)
		RETURNING message`)
)

// Over reports whether all deliveries of a message have been final since before
// a time.
func Over(deliveries []Record, before time.Time) bool {
	for _, d := range deliveries {
		if !d.State.Final() || !d.UpdatedAt.Before(before) {
			return false
		}
	}
	return true
}

// LockOver is for the guard of the job that deletes a message: over becomes
// whether Over is still true, and then stays so until the commit; it is false
// too while its sender is still to be told something.
func (q *Queue) LockOver(b *db.Batch, message db.ID, before time.Time, over *bool) {
	*over = true
	b.Queue(ends.With(message)).Each(func(r db.Row) error {
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

// Delete queues the deletion of a message's deliveries and attempts, in a job
// in which LockOver found that they are over.
func (q *Queue) Delete(b *db.Batch, message db.ID) {
	b.Queue(deleteAttempts.With(message))
	b.Queue(deleteRemarks.With(message))
	b.Queue(deleteDeliveries.With(message))
}

// pruned is how far a round of pruning attempts has come.
type pruned struct {
	mu   sync.Mutex
	upTo db.ID
}

// PruneAttempts deletes, in one commit, at most limit attempts, with their
// conversations, of deliveries that have been final since before a time, and
// returns how many; 0: there are no more.
func (q *Queue) PruneAttempts(ctx context.Context, before time.Time, limit int) (n int, err error) {
	q.pruned.mu.Lock()
	defer q.pruned.mu.Unlock()
	var last db.ID
	err = q.o.DB.Write(ctx, 0, &db.Job{Apply: func(b *db.Batch) {
		n, last = 0, q.pruned.upTo
		b.Queue(pruneAttempts.With(q.pruned.upTo, db.FirstID(before), db.Micros(before), limit)).Each(func(r db.Row) error {
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
	// What was gone through is not gone through again in this round.
	if q.pruned.upTo = last; n == 0 {
		q.pruned.upTo = 0
	}
	return n, nil
}

// BouncedPast takes a DSN about a delivery of API mail whose rows were deleted
// meanwhile: of what it says only the suppression is left to be done. It reports
// whether the recipient came on the account's list.
func (q *Queue) BouncedPast(ctx context.Context, account, message db.ID, n int, recipient address.Address, r Report) (bool, error) {
	s := statusData{
		About: About{Account: account, API: true}, ID: message, Recipient: recipient.String(), Status: Bounced,
		Code: r.Code, Enhanced: clean(r.Enhanced, 16), Reply: clean(r.Text, maxReply), Remote: clean(r.Remote, 255),
	}
	if !bounceOfReport(&s, r.Verdict).Suppress {
		return false, nil
	}
	add, ok := q.suppress(&s, n, suppression.Bounce, s.diagnostic())
	if !ok {
		return false, nil
	}
	listed, err := q.o.DB.Exec(ctx, add)
	return listed > 0, err
}

// ComplainedPast takes a complaint about a delivery of API mail whose rows were
// deleted meanwhile: its recipient is suppressed, and the event complaint is
// fired, once. It reports whether that was news.
func (q *Queue) ComplainedPast(ctx context.Context, message db.ID, n int, recipient address.Address, r Report) (bool, error) {
	about, err := q.o.Describe(ctx, message)
	if err != nil {
		return false, err
	}
	c := changed{statusData: statusData{About: about, ID: message, Recipient: recipient.String(), Status: Complained}}
	add, ok := q.suppress(&c.statusData, n, suppression.Complaint, r.Text)
	if !ok {
		return false, nil
	}
	listed := false
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, add)
		if listed = n > 0; err != nil || !listed {
			return err
		}
		events := c.complaint(clean(r.Text, maxReply), clean(r.Remote, 255))
		return q.recordAll(ctx, tx, events[len(events)-1:]) // there is no state left to change
	})
	return listed && err == nil, err
}
