// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
)

// maxHolds is the maximum of active holds. Every node keeps all of them in memory.
const maxHolds = 1000

var (
	// The count includes deliveries that a node held first, because of the new hold.
	holdQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN lease IS NULL THEN 0 ELSE lease END, hold = $3,
			held_at = CASE WHEN hold = 0 THEN $4 ELSE held_at END
		WHERE message = $1 AND n = $2 AND (hold = 0 OR hold = $3) AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING lease`)
	releaseHeldQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN lease = 0 THEN NULL ELSE lease END, hold = 0,
			expires_at = expires_at + CASE WHEN lease > 0 THEN 0
				WHEN state <> 'scheduled' OR due_at <= held_at THEN CASE WHEN held_at < $4 THEN $4 - held_at ELSE 0 END
				WHEN due_at < $4 THEN $4 - due_at ELSE 0 END
		WHERE message = $1 AND n = $2 AND hold = $3 AND lease IS NOT NULL
		RETURNING n`)
	insertHoldQuery = db.SQL(`INSERT INTO queue_hold (id, kind, target, reason, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, target) DO UPDATE SET reason = CASE WHEN excluded.reason = '' THEN queue_hold.reason ELSE excluded.reason END
		RETURNING id`)
	holdIDQuery     = db.SQL(`SELECT id FROM queue_hold WHERE kind = $1 AND target = $2`)
	deleteHoldQuery = db.SQL(`DELETE FROM queue_hold WHERE id = $1`)
	countHoldsQuery = db.SQL(`SELECT COUNT(*) FROM queue_hold`)
)

// Hold holds the selected deliveries until they are released: no node attempts them, and their
// expiry is suspended. A hold by destination or account alone stays active and also holds future
// deliveries. The node holds a leased delivery when it releases it, unless it is final by then.
func (q *Queue) Hold(ctx context.Context, c Command) (res Result, err error) {
	if err := c.Normalize(); err != nil {
		return res, err
	}
	id := queue.IndividualHold
	if kind, target := c.holdTarget(); kind != "" && !c.DryRun {
		if id, err = q.addHold(ctx, &c, kind, target); err != nil {
			return res, err
		}
	}
	now := q.Now()
	err = q.forEachChunk(ctx, &c, allIndexes, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool { return e.Held })
		res.Matched += len(list)
		if c.DryRun || len(list) == 0 {
			return nil
		}
		leases, err := q.updateEntries(ctx, list, func(e *Entry) db.Statement { return holdQuery.With(e.Message, e.N, id, db.Micros(now)) })
		for _, lease := range leases {
			if lease == 0 {
				res.Changed++
			} else {
				res.Leased++
			}
		}
		return err
	})
	q.wake(notify.Hold)
	return res, err
}

// addHold adds an active hold, or finds the existing one. A continued command adds none: the hold
// may have been released in the meantime.
func (q *Queue) addHold(ctx context.Context, c *Command, kind queue.HoldKind, target string) (id db.ID, err error) {
	if c.After != "" {
		err := q.DB.One(ctx, holdIDQuery.With(string(kind), target), &id)
		return id, db.IfNoRow(err, fault.New(fault.Conflict, "hold_ended", "This hold was released meanwhile."))
	}
	err = q.retryOnConflict(func() error {
		return q.DB.Tx(ctx, func(tx *db.Tx) error {
			if err := tx.Lock(ctx, "holds", 0); err != nil {
				return err
			}
			if err := tx.One(ctx, insertHoldQuery.With(q.DB.NewID(), string(kind), target, c.Reason, db.Micros(q.Now())), &id); err != nil {
				return err
			}
			var n int
			err := tx.One(ctx, countHoldsQuery.With(), &n)
			if err == nil && n > maxHolds {
				err = fault.New(fault.Conflict, "too_many_holds", "There can be %d active holds. Release some.", maxHolds)
			}
			return err
		})
	})
	if err == nil {
		q.wake(notify.Hold)
	}
	return id, err
}

// Release releases held deliveries. A release by destination or account alone, or of all, also
// removes the active hold. A delivery stays held if another active hold applies. Release adds the
// time on hold to each delivery's expiry.
func (q *Queue) Release(ctx context.Context, c Command) (res Result, err error) {
	if err := c.Normalize(); err != nil {
		return res, err
	}
	holds, err := queue.ReadHolds(ctx, q.DB)
	if err != nil {
		return res, err
	}
	kind, target := c.holdTarget()
	left := map[db.ID]bool{}
	for _, h := range holds {
		if c.After == "" && !c.ExistingOnly && (c.All || h.Kind == kind && h.Target == target) {
			if !c.DryRun {
				if _, err := q.DB.Exec(ctx, deleteHoldQuery.With(h.ID)); err != nil {
					return res, err
				}
			}
			continue
		}
		left[h.ID] = true
	}
	now := q.Now()
	err = q.forEachChunk(ctx, &c, []int{indexLeased, indexHeld}, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool {
			if left[e.hold] {
				res.StillHeld++
			}
			return !e.Held || left[e.hold]
		})
		res.Matched += len(list)
		if c.DryRun || len(list) == 0 {
			return nil
		}
		// The count includes deliveries that a node released first, because the hold is gone.
		res.Changed += len(list)
		_, err := q.updateEntries(ctx, list, func(e *Entry) db.Statement { return releaseHeldQuery.With(e.Message, e.N, e.hold, db.Micros(now)) })
		return err
	})
	q.wake(notify.Hold)
	q.wake(notify.Queue)
	return res, err
}
