// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// Command is something to be done with deliveries.
type Command struct {
	Filter
	All    bool   // must be set when the filter is empty
	Reason string // of a hold, or of what is dropped
	// ExistingOnly holds or releases only what is there. Otherwise a hold by
	// destination or by account alone stands: it holds what is to come too.
	ExistingOnly bool
	Silent       bool // the senders of dropped submissions are not told
	DryRun       bool // only count
	// Wait is for how long a drop waits for nodes to let go of what they have
	// in hand.
	Wait     time.Duration
	Progress func(Result) // told after each chunk; may be nil
	// Limit is how many rows are looked at, about; 0: all. After goes on where
	// the same order ended before for that reason: it is the Result's Next.
	Limit int
	After string
}

// Result counts deliveries.
type Result struct {
	Matched   int // that were chosen
	Changed   int // with which it was done; with DryRun none
	Leased    int // that a node has in hand: held when it lets go, unless they reach an end
	StillHeld int // not released, since another standing hold is on them
	// Next goes on where Command.Most ended it; "" if the order is done.
	Next string
}

// maxChangedRows bounds how many deliveries change in one commit.
const maxChangedRows = 200

// maxReason bounds a reason, in bytes.
const maxReason = 500

// Check completes an order, and refuses with a fault.Invalid what can't be meant.
func (or *Command) Check() error {
	var bad fault.FieldErrors
	if err := bad.Merge(or.Filter.Check()); err != nil {
		return err
	}
	if len(or.Reason) > maxReason {
		bad.Add("reason", "too_long", "A reason can have %d bytes.", maxReason)
	}
	or.Reason = sanitize(or.Reason, maxReason)
	if _, err := or.start(); err != nil {
		addCursorError(&bad)
	}
	if (or.Filter == Filter{}) && !or.All {
		bad.Add("all", "required", "Choose what is meant, or say that everything is.")
	}
	if (or.Filter != Filter{}) && or.All {
		bad.Add("all", "conflicting", "Choose what is meant, or everything, not both.")
	}
	return bad.Err()
}

// holdTarget returns the standing hold that an order is about; "" for none.
func (or *Command) holdTarget() (HoldKind, string) {
	switch or.Filter {
	case Filter{Destination: or.Destination}:
		if or.Destination != "" && !or.ExistingOnly {
			return HoldDestination, or.Destination
		}
	case Filter{Account: or.Account}:
		if !or.ExistingOnly {
			return HoldAccount, strconv.FormatInt(int64(or.Account), 10)
		}
	}
	return "", ""
}

// allIndexes is the order in which the places are walked through, so that what
// a node takes in hand or gives back meanwhile is met in one or the other.
var allIndexes = []int{indexLeased, indexWaiting, indexHeld, indexLeased}

// start is where an order's walk begins.
func (or *Command) start() (listCursor, error) {
	at, err := parseCursor(or.After)
	if at.Pass < 0 || at.Pass > len(allIndexes) {
		err = errCursor
	}
	return at, err
}

// forEachChunk walks through what an order chooses, in chunks.
func (o *Admin) forEachChunk(ctx context.Context, or *Command, places []int, res *Result, do func([]Entry) error) error {
	if or.Message != 0 {
		places = []int{indexWaiting} // all that is of a message is read at once
	}
	at, err := or.start()
	if err != nil {
		return err
	}
	seen := map[deliveryKey]bool{} // in hand, which is walked twice
	rows := 0
	for leg := at.Pass; leg < len(places); leg++ {
		if or.After == "" || leg > at.Pass {
			at = listCursor{Pass: leg, Index: places[leg], Due: startCursor.Due}
		}
		for at.Index == places[leg] {
			if or.Limit > 0 && rows >= or.Limit {
				res.Next = at.String()
				return nil
			}
			list, next, err := o.readPage(ctx, &or.Filter, at, maxChangedRows)
			if err != nil {
				return err
			}
			rows += maxChangedRows
			at = next
			at.Pass = leg
			list = slices.DeleteFunc(list, func(e Entry) bool { return seen[deliveryKey{e.Message, e.N}] })
			if err := o.processChunk(ctx, or, list, seen, do); err != nil {
				return err
			}
			if or.Progress != nil {
				or.Progress(*res)
			}
		}
	}
	return nil
}

// processChunk does what is ordered with the rows of one reading.
func (o *Admin) processChunk(ctx context.Context, or *Command, list []Entry, seen map[deliveryKey]bool, do func([]Entry) error) (err error) {
	if or.Sender != "" {
		if list, err = o.addViews(ctx, &or.Filter, list); err != nil {
			return err
		}
	}
	for _, e := range list {
		if e.lease > 0 {
			seen[deliveryKey{e.Message, e.N}] = true
		}
	}
	if len(list) == 0 {
		return nil
	}
	return do(list)
}

// updateEntries runs one conditional update per entry in one commit; changed is
// called with what each returns.
func (o *Admin) updateEntries(ctx context.Context, list []Entry, update func(e *Entry) db.Statement, begin func(), changed func(e *Entry, r db.Row) error) error {
	return o.DB.Write(ctx, list[0].Message, &db.Mutation{Guard: func(b *db.Batch) {
		begin()
		for i := range list {
			e := &list[i]
			b.Queue(update(e)).Each(func(r db.Row) error { return changed(e, r) })
		}
	}})
}

var (
	// What a node was quicker to hold, since the hold stands, counts as well.
	holdQuery = db.SQL(`UPDATE delivery SET tenure = CASE WHEN tenure IS NULL THEN 0 ELSE tenure END, hold = $3,
			held_at = CASE WHEN hold = 0 THEN $4 ELSE held_at END
		WHERE message = $1 AND n = $2 AND (hold = 0 OR hold = $3) AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING tenure`)
	releaseHeldQuery = db.SQL(`UPDATE delivery SET tenure = CASE WHEN tenure = 0 THEN NULL ELSE tenure END, hold = 0,
			expires_at = expires_at + CASE WHEN tenure > 0 THEN 0
				WHEN state <> 'scheduled' OR due_at <= held_at THEN CASE WHEN held_at < $4 THEN $4 - held_at ELSE 0 END
				WHEN due_at < $4 THEN $4 - due_at ELSE 0 END
		WHERE message = $1 AND n = $2 AND hold = $3 AND tenure IS NOT NULL
		RETURNING n`)
	insertHoldQuery = db.SQL(`INSERT INTO queue_hold (id, kind, target, reason, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, target) DO UPDATE SET reason = CASE WHEN excluded.reason = '' THEN queue_hold.reason ELSE excluded.reason END
		RETURNING id`)
	holdIDQuery       = db.SQL(`SELECT id FROM queue_hold WHERE kind = $1 AND target = $2`)
	deleteHoldQuery   = db.SQL(`DELETE FROM queue_hold WHERE id = $1`)
	countHoldsQuery   = db.SQL(`SELECT COUNT(*) FROM queue_hold`)
	retryWaitingQuery = db.SQL(`UPDATE delivery SET due_at = CASE WHEN due_at > $3 THEN $3 ELSE due_at END
		WHERE message = $1 AND n = $2 AND tenure IS NULL AND state IN ('queued', 'deferred') RETURNING n`)
	insertRetryRequestQuery = db.SQL(`INSERT INTO queue_nudge (destination, at) VALUES ($1, $2) ON CONFLICT (destination) DO UPDATE SET at = excluded.at`)
	pruneRetryRequestsQuery = db.SQL(`DELETE FROM queue_nudge WHERE at < $1`)
)

// Hold holds what the order chooses until it is released: no node tries it,
// and its time does not run out. By destination or account alone it stands, and
// holds what is to come as well. What a node has in hand is held when that lets
// go of it, unless it reaches an end by then.
func (o *Admin) Hold(ctx context.Context, or Command) (res Result, err error) {
	if err := or.Check(); err != nil {
		return res, err
	}
	id := individualHold
	if kind, target := or.holdTarget(); kind != "" && !or.DryRun {
		if id, err = o.addHold(ctx, &or, kind, target); err != nil {
			return res, err
		}
	}
	now := o.Now()
	err = o.forEachChunk(ctx, &or, allIndexes, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool { return e.Held })
		res.Matched += len(list)
		if or.DryRun || len(list) == 0 {
			return nil
		}
		parked, marked := 0, 0
		err := o.updateEntries(ctx, list, func(e *Entry) db.Statement { return holdQuery.With(e.Message, e.N, id, db.Micros(now)) },
			func() { parked, marked = 0, 0 },
			func(_ *Entry, r db.Row) error {
				var tenure db.ID
				err := r.Scan(&tenure)
				if tenure == 0 {
					parked++
				} else {
					marked++
				}
				return err
			})
		res.Changed, res.Leased = res.Changed+parked, res.Leased+marked
		return err
	})
	o.wake(notify.Hold)
	return res, err
}

// addHold makes a standing hold, or finds it. An order that goes on makes none:
// it may have been ended meanwhile.
func (o *Admin) addHold(ctx context.Context, or *Command, kind HoldKind, target string) (id db.ID, err error) {
	if or.After != "" {
		err := o.DB.One(ctx, holdIDQuery.With(string(kind), target), &id)
		if errors.Is(err, db.ErrNoRow) {
			err = fault.New(fault.Conflict, "hold_ended", "This hold was released meanwhile.")
		}
		return id, err
	}
	err = o.retryOnConflict(func() error {
		return o.DB.Tx(ctx, func(tx *db.Tx) error {
			if err := tx.Lock(ctx, "holds", 0); err != nil {
				return err
			}
			if err := tx.One(ctx, insertHoldQuery.With(o.DB.NewID(), string(kind), target, or.Reason, db.Micros(o.Now())), &id); err != nil {
				return err
			}
			var n int
			err := tx.One(ctx, countHoldsQuery.With(), &n)
			if err == nil && n > maxHolds {
				err = fault.New(fault.Conflict, "too_many_holds", "There can be %d standing holds. Release some.", maxHolds)
			}
			return err
		})
	})
	if err == nil {
		o.wake(notify.Hold)
	}
	return id, err
}

// Release ends a hold. By destination or account alone, and for all, it ends
// the standing one too. A delivery that another standing hold is on is kept.
// The time that each was held is added to its expiry.
func (o *Admin) Release(ctx context.Context, or Command) (res Result, err error) {
	if err := or.Check(); err != nil {
		return res, err
	}
	holds, err := readHolds(ctx, o.DB)
	if err != nil {
		return res, err
	}
	kind, target := or.holdTarget()
	left := map[db.ID]bool{}
	for _, h := range holds {
		if or.After == "" && !or.ExistingOnly && (or.All || h.Kind == kind && h.Target == target) {
			if !or.DryRun {
				if err := o.removeHold(ctx, h.ID); err != nil {
					return res, err
				}
			}
			continue
		}
		left[h.ID] = true
	}
	now := o.Now()
	err = o.forEachChunk(ctx, &or, []int{indexLeased, indexHeld}, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool {
			if left[e.hold] {
				res.StillHeld++
			}
			return !e.Held || left[e.hold]
		})
		res.Matched += len(list)
		if or.DryRun || len(list) == 0 {
			return nil
		}
		// What a node was quicker with, since the standing hold is gone, is
		// released as well.
		res.Changed += len(list)
		return o.updateEntries(ctx, list, func(e *Entry) db.Statement { return releaseHeldQuery.With(e.Message, e.N, e.hold, db.Micros(now)) },
			func() {}, func(*Entry, db.Row) error { return nil })
	})
	o.wake(notify.Hold)
	o.wake(notify.Queue)
	return res, err
}

// retryOnConflict repeats what was declined since another process made the same id:
// commands beside the nodes have no number of their own.
func (o *Admin) retryOnConflict(try func() error) (err error) {
	for range 20 {
		if err = try(); !o.DB.IsConflict(err) {
			break
		}
	}
	return err
}

func (o *Admin) removeHold(ctx context.Context, hold db.ID) error {
	_, err := o.DB.Exec(ctx, deleteHoldQuery.With(hold))
	return err
}

// Retry makes what waits due now, and has the nodes try destinations that they
// have put off. Of a single message what has failed is tried again too. What
// is scheduled, held or in hand is left as it is.
func (o *Admin) Retry(ctx context.Context, or Command) (res Result, err error) {
	if err := or.Check(); err != nil {
		return res, err
	}
	now := o.Now()
	to := map[string]bool{}
	err = o.forEachChunk(ctx, &or, []int{indexWaiting}, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool { return e.lease != 0 || e.Held || e.state == Scheduled })
		res.Matched += len(list)
		if or.DryRun || len(list) == 0 {
			return nil
		}
		n := 0
		err := o.updateEntries(ctx, list, func(e *Entry) db.Statement { return retryWaitingQuery.With(e.Message, e.N, db.Micros(now)) },
			func() { n = 0 }, func(e *Entry, _ db.Row) error { n++; return nil })
		res.Changed += n
		for _, e := range list {
			to[e.Destination] = true
		}
		return err
	})
	if err == nil && or.Message != 0 {
		err = o.requeueFailed(ctx, &or, &res, to, now)
	}
	if len(to) > 0 {
		err = errors.Join(err, o.requestRetry(ctx, to, now))
	}
	return res, err
}

// requestRetry tells all nodes which destinations are wanted now.
func (o *Admin) requestRetry(ctx context.Context, to map[string]bool, now time.Time) error {
	var names []string
	for name := range to {
		names = append(names, name)
	}
	if slices.Sort(names); len(names) > maxChangedRows {
		names = []string{allDestinations}
	}
	err := o.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, pruneRetryRequestsQuery.With(db.Micros(now.Add(-retryRequestTTL)))); err != nil {
			return err
		}
		for _, name := range names {
			if _, err := tx.Exec(ctx, insertRetryRequestQuery.With(name, db.Micros(now))); err != nil {
				return err
			}
		}
		return nil
	})
	o.wake(notify.Hold)
	o.wake(notify.Queue)
	return err
}

// requeueFailed makes the failed deliveries of one message queued.
func (o *Admin) requeueFailed(ctx context.Context, or *Command, res *Result, to map[string]bool, now time.Time) error {
	all, err := db.All(ctx, o.DB, deliveriesQuery.With(or.Message), scanDeliveryRow)
	if err != nil || or.Filter != (Filter{Message: or.Message}) {
		return err
	}
	about, err := o.messageInfo(ctx, or.Message, 0)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.State != Failed {
			continue
		}
		res.Matched++
		if or.DryRun {
			continue
		}
		done := false
		err := o.retryOnConflict(func() error {
			return o.DB.Tx(ctx, func(tx *db.Tx) error {
				c, err := updateDelivery(ctx, tx, requeueFailedQuery.With(or.Message, r.N, db.Micros(now), db.Micros(now.Add(retryLifetime)), math.MaxInt32, 0))
				if done = c != nil; err != nil || !done {
					return err
				}
				to[c.destination] = true
				c.MessageInfo, c.ID, c.Status = about, or.Message, Queued
				c.Sequence--
				for _, e := range c.events(nil) {
					if err := o.Events.Record(ctx, tx, e); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if done {
			res.Changed++
		}
	}
	return nil
}

// messageInfo is what events say about a message, also about one that is gone.
func (o *Admin) messageInfo(ctx context.Context, message, account db.ID) (MessageInfo, error) {
	about, err := o.Describe(ctx, message)
	if fault.Is(err, fault.NotFound) {
		return MessageInfo{Account: account}, nil
	}
	return about, err
}
