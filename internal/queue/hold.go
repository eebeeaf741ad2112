// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
)

// A held delivery has lease 0: no node leases it, its expiry is suspended, and it can still be
// cancelled. A leased delivery is only marked (hold > 0), because only its node knows whether an
// attempt is running. That node releases it, and the outcome of a running attempt counts. So no
// attempt is lost, and an attempt of a held delivery begins at most within the second after the
// hold.

// HoldKind is what an active hold applies to.
type HoldKind string

// The kinds of holds.
const (
	HoldDestination HoldKind = "destination" // all mail to a domain
	HoldAccount     HoldKind = "account"     // all mail of an account
)

// Hold is an active hold: it holds all mail to a destination or of an account, including future
// mail.
type Hold struct {
	ID        db.ID
	Kind      HoldKind
	Target    string // the destination in A-labels, or the account's id as a number
	Reason    string
	CreatedAt time.Time
}

// Account returns the account of a hold; false if the hold is for a destination.
func (h *Hold) Account() (db.ID, bool) {
	id, err := strconv.ParseInt(h.Target, 10, 64)
	return db.ID(id), h.Kind == HoldAccount && err == nil
}

// IndividualHold is the hold id of a delivery that no active hold applies to.
const IndividualHold db.ID = 1

var holdsQuery = db.SQL(`SELECT id, kind, target, reason, created_at FROM queue_hold ORDER BY id`)

// ReadHolds returns the active holds, the oldest first.
func ReadHolds(ctx context.Context, r db.Reader) ([]Hold, error) {
	return db.All(ctx, r, holdsQuery.With(), func(r db.Row) (h Hold, err error) {
		var created int64
		err = r.Scan(&h.ID, (*string)(&h.Kind), &h.Target, &h.Reason, &created)
		h.CreatedAt = db.Time(created)
		return h, err
	})
}

// activeHolds indexes the active holds as this node last read them.
type activeHolds struct {
	destinations map[string]db.ID
	accounts     map[db.ID]db.ID
	ids          map[db.ID]bool
}

func newActiveHolds(all []Hold) (*activeHolds, error) {
	if len(all) == 0 {
		return nil, nil
	}
	s := &activeHolds{destinations: map[string]db.ID{}, accounts: map[db.ID]db.ID{}, ids: map[db.ID]bool{}}
	for _, h := range all {
		s.ids[h.ID] = true
		if h.Kind == HoldDestination {
			s.destinations[h.Target] = h.ID
			continue
		}
		id, ok := h.Account()
		if !ok {
			return nil, fmt.Errorf("the active hold %d is for no account", h.ID)
		}
		s.accounts[id] = h.ID
	}
	return s, nil
}

// destinationHold returns the active hold of a destination, 0 for none.
func (s *activeHolds) destinationHold(name string) db.ID {
	if s == nil {
		return 0
	}
	return s.destinations[name]
}

// deliveryHold returns the active hold that applies to a delivery, 0 for none.
func (s *activeHolds) deliveryHold(destination string, account db.ID) db.ID {
	if id := s.destinationHold(destination); id != 0 || s == nil {
		return id
	}
	return s.accounts[account]
}

var (
	leasedHeldQuery = db.SQL(`SELECT message, n FROM delivery WHERE lease > 0 AND hold > 0 AND lease = $1 ORDER BY message, n LIMIT $2`)
	holdLeasedQuery = db.SQL(`UPDATE delivery SET lease = 0, hold = $4, held_at = $5 WHERE message = $1 AND n = $2 AND lease = $3
		AND state IN ('scheduled', 'queued', 'deferred')`)
	holdWaitingQuery = db.SQL(`WITH due AS MATERIALIZED (SELECT message, n FROM delivery
			WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination = $1
			ORDER BY due_at LIMIT $2 {skip_locked})
		UPDATE delivery SET lease = 0, hold = $3, held_at = $4 WHERE (message, n) IN (SELECT message, n FROM due)`)
	nextHoldQuery = db.SQL(`SELECT hold FROM delivery WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred') AND hold > $1 ORDER BY hold LIMIT 1`)
	// The + 0 keeps the outer query from using an index, see claimQuery.
	releaseHoldQuery = db.SQL(`UPDATE delivery SET lease = NULL, hold = 0, expires_at = expires_at + CASE
			WHEN state <> 'scheduled' OR due_at <= held_at THEN CASE WHEN held_at < $2 THEN $2 - held_at ELSE 0 END
			WHEN due_at < $2 THEN $2 - due_at ELSE 0 END
		WHERE (message, n) IN (SELECT message, n FROM delivery
			WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred') AND hold = $1 ORDER BY message, n LIMIT $3)
		AND lease + 0 = 0 AND hold + 0 = $1`)
)

// maxReleaseChunks is the maximum of chunks released per poll, because a poll has other work.
const maxReleaseChunks = 3

// applyOperatorRequests applies the requests of operators, also those made on other nodes and on
// the command line. It reads the active holds, releases held deliveries, and retries destinations.
func (q *Queue) applyOperatorRequests(ctx context.Context, now time.Time) error {
	list, err := ReadHolds(ctx, q.o.DB)
	if err != nil {
		return err
	}
	holds, err := newActiveHolds(list)
	if err != nil {
		return err
	}
	leaseID, _ := q.o.Node.Lease()
	mine, err := db.All(ctx, q.o.DB, leasedHeldQuery.With(leaseID, lease.BatchRows), scanDeliveryKey)
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.holds, q.holdsReadAt = holds, now
	q.enforceHolds(mine)
	q.mu.Unlock()
	return errors.Join(q.releaseOrphans(ctx, holds, now), q.applyRetryRequests(ctx, now))
}

// enforceHolds releases leased deliveries that are held and not in an attempt. q.mu is held.
func (q *Queue) enforceHolds(mine []deliveryKey) {
	if q.holds == nil && len(mine) == 0 {
		return
	}
	isMarked := make(map[deliveryKey]bool, len(mine))
	for _, p := range mine {
		isMarked[p] = true
	}
	var held, back []*Delivery
	q.dispatch.Withdraw(func(d *Delivery) bool {
		switch {
		case isMarked[d.Key()]:
			back = append(back, d)
		case q.holds.deliveryHold(d.Destination, d.Account) != 0:
			held = append(held, d)
		default:
			return false
		}
		return true
	})
	q.releaseHeld(held, back)
}

// releaseHeld releases leased deliveries to their rows: held ones under an active hold, the
// others as their rows say. The caller holds q.mu, so releaseHeld does not wait.
func (q *Queue) releaseHeld(held, back []*Delivery) {
	if len(held)+len(back) == 0 {
		return
	}
	holds := q.holds
	q.startTask(func() {
		for some := range slices.Chunk(held, 100) {
			q.startWrite(func() { q.holdBatch(some, holds) })
		}
		q.release(back, time.Time{}, nil)
	})
}

func (q *Queue) holdBatch(ds []*Delivery, holds *activeHolds) {
	now := db.Micros(q.o.Now())
	err := q.write(ds[0].Message, &db.Mutation{Guard: func(b *db.Batch) {
		for _, d := range ds {
			b.Queue(holdLeasedQuery.With(d.Message, d.N, d.Lease, holds.deliveryHold(d.Destination, d.Account), now))
		}
	}})
	if err != nil {
		q.o.Log.Error("deliveries could not be held", "count", len(ds), "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range ds {
		q.dispatch.Forget(d)
	}
}

// holdWaitingRows holds the waiting rows of a destination under an active hold, such as those added
// before this node knew of the hold. q.mu is held.
func (q *Queue) holdWaitingRows(c *claim, hold db.ID) {
	defer q.work.Done()
	n, err := q.o.DB.Exec(q.writeCtx, holdWaitingQuery.With(c.Destination, lease.BatchRows, hold, db.Micros(q.o.Now())))
	if err != nil {
		q.o.Log.Error("the waiting deliveries of a destination could not be held", "destination", c.Destination, "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch.EndClaim(c, n < lease.BatchRows, err == nil)
}

// releaseOrphans releases deliveries of holds that were removed: a node may have held them before
// it learned of the removal.
func (q *Queue) releaseOrphans(ctx context.Context, holds *activeHolds, now time.Time) error {
	for hold := IndividualHold; ; {
		if err := q.o.DB.One(ctx, nextHoldQuery.With(hold), &hold); err != nil {
			return db.IfNoRow(err, nil)
		}
		if holds != nil && holds.ids[hold] {
			continue
		}
		// The hold may have been added after the holds were read.
		if list, err := ReadHolds(ctx, q.o.DB); err != nil {
			return err
		} else if slices.ContainsFunc(list, func(h Hold) bool { return h.ID == hold }) {
			continue
		}
		if more, err := q.releaseRemovedHold(ctx, hold, now); more || err != nil {
			return err
		}
	}
}

// releaseRemovedHold releases the deliveries of one hold, over several polls if there are many.
// more reports whether the next poll must continue.
func (q *Queue) releaseRemovedHold(ctx context.Context, hold db.ID, now time.Time) (more bool, err error) {
	for range maxReleaseChunks {
		n, err := q.o.DB.Exec(ctx, releaseHoldQuery.With(hold, db.Micros(now), lease.BatchRows))
		if err != nil || n < lease.BatchRows {
			return false, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holdsReadAt = time.Time{}
	q.wakeAt(now)
	return true, nil
}
