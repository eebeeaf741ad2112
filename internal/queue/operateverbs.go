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
	"github.com/mailstead/mailstead/internal/signal"
)

// Order is something to be done with deliveries.
type Order struct {
	Filter
	All    bool   // must be set when the filter is empty
	Reason string // of a hold, or of what is dropped
	// Once holds or releases only what is there. Otherwise a hold by
	// destination or by account alone stands: it holds what is to come too.
	Once   bool
	Silent bool // the senders of dropped submissions are not told
	DryRun bool // only count
	// Wait is for how long a drop waits for nodes to let go of what they have
	// in hand.
	Wait     time.Duration
	Progress func(Result) // told after each chunk; may be nil
	// Most is how many rows are looked at, about; 0: all. After goes on where
	// the same order ended before for that reason: it is the Result's Next.
	Most  int
	After string
}

// Result counts deliveries.
type Result struct {
	Matched int // that were chosen
	Changed int // with which it was done; with DryRun none
	InHand  int // that a node has in hand: held when it lets go, unless they reach an end
	Kept    int // not released, since another standing hold is on them
	// Next goes on where Order.Most ended it; "" if the order is done.
	Next string
}

// changeRows bounds how many deliveries change in one commit.
const changeRows = 200

// maxReason bounds a reason, in bytes.
const maxReason = 500

// Check completes an order, and refuses with a fault.Invalid what can't be meant.
func (or *Order) Check() error {
	var bad fault.Fields
	if err := bad.Merge(or.Filter.Check()); err != nil {
		return err
	}
	if len(or.Reason) > maxReason {
		bad.Add("reason", "too_long", "A reason can have %d bytes.", maxReason)
	}
	or.Reason = clean(or.Reason, maxReason)
	if _, err := or.begins(); err != nil {
		badCursor(&bad)
	}
	if (or.Filter == Filter{}) && !or.All {
		bad.Add("all", "required", "Choose what is meant, or say that everything is.")
	}
	if (or.Filter != Filter{}) && or.All {
		bad.Add("all", "conflicting", "Choose what is meant, or everything, not both.")
	}
	return bad.Err()
}

// standing returns the standing hold that an order is about; "" for none.
func (or *Order) standing() (HoldKind, string) {
	switch or.Filter {
	case Filter{Destination: or.Destination}:
		if or.Destination != "" && !or.Once {
			return HoldDestination, or.Destination
		}
	case Filter{Account: or.Account}:
		if !or.Once {
			return HoldAccount, strconv.FormatInt(int64(or.Account), 10)
		}
	}
	return "", ""
}

// everywhere is the order in which the places are walked through, so that what
// a node takes in hand or gives back meanwhile is met in one or the other.
var everywhere = []int{ofHand, ofWaiting, ofHeld, ofHand}

// begins is where an order's walk begins.
func (or *Order) begins() (spot, error) {
	at, err := parseSpot(or.After)
	if at.Leg < 0 || at.Leg > len(everywhere) {
		err = errCursor
	}
	return at, err
}

// each walks through what an order chooses, in chunks.
func (o *Operator) each(ctx context.Context, or *Order, places []int, res *Result, do func([]Entry) error) error {
	if or.Message != 0 {
		places = []int{ofWaiting} // all that is of a message is read at once
	}
	at, err := or.begins()
	if err != nil {
		return err
	}
	seen := map[place]bool{} // in hand, which is walked twice
	rows := 0
	for leg := at.Leg; leg < len(places); leg++ {
		if or.After == "" || leg > at.Leg {
			at = spot{Leg: leg, Place: places[leg], Due: start.Due}
		}
		for at.Place == places[leg] {
			if or.Most > 0 && rows >= or.Most {
				res.Next = at.String()
				return nil
			}
			list, next, err := o.read(ctx, &or.Filter, at, changeRows)
			if err != nil {
				return err
			}
			rows += changeRows
			at = next
			at.Leg = leg
			list = slices.DeleteFunc(list, func(e Entry) bool { return seen[place{e.Message, e.N}] })
			if err := o.chunk(ctx, or, list, seen, do); err != nil {
				return err
			}
			if or.Progress != nil {
				or.Progress(*res)
			}
		}
	}
	return nil
}

// chunk does what is ordered with the rows of one reading.
func (o *Operator) chunk(ctx context.Context, or *Order, list []Entry, seen map[place]bool, do func([]Entry) error) (err error) {
	if or.Sender != "" {
		if list, err = o.withLetters(ctx, &or.Filter, list); err != nil {
			return err
		}
	}
	for _, e := range list {
		if e.tenure > 0 {
			seen[place{e.Message, e.N}] = true
		}
	}
	if len(list) == 0 {
		return nil
	}
	return do(list)
}

// commit runs one conditional update per entry in one commit; changed is
// called with what each returns.
func (o *Operator) commit(ctx context.Context, list []Entry, update func(e *Entry) db.Statement, begin func(), changed func(e *Entry, r db.Row) error) error {
	return o.DB.Write(ctx, list[0].Message, &db.Job{Guard: func(b *db.Batch) {
		begin()
		for i := range list {
			e := &list[i]
			b.Queue(update(e)).Each(func(r db.Row) error { return changed(e, r) })
		}
	}})
}

var (
	// What a node was quicker to hold, since the hold stands, counts as well.
	hold = db.SQL(`UPDATE delivery SET tenure = CASE WHEN tenure IS NULL THEN 0 ELSE tenure END, hold = $3,
			held_at = CASE WHEN hold = 0 THEN $4 ELSE held_at END
		WHERE message = $1 AND n = $2 AND (hold = 0 OR hold = $3) AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING tenure`)
	release = db.SQL(`UPDATE delivery SET tenure = CASE WHEN tenure = 0 THEN NULL ELSE tenure END, hold = 0,
			expires_at = expires_at + CASE WHEN tenure > 0 THEN 0
				WHEN state <> 'scheduled' OR due_at <= held_at THEN CASE WHEN held_at < $4 THEN $4 - held_at ELSE 0 END
				WHEN due_at < $4 THEN $4 - due_at ELSE 0 END
		WHERE message = $1 AND n = $2 AND hold = $3 AND tenure IS NOT NULL
		RETURNING n`)
	insertHold = db.SQL(`INSERT INTO queue_hold (id, kind, target, reason, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, target) DO UPDATE SET reason = CASE WHEN excluded.reason = '' THEN queue_hold.reason ELSE excluded.reason END
		RETURNING id`)
	holdOf     = db.SQL(`SELECT id FROM queue_hold WHERE kind = $1 AND target = $2`)
	deleteHold = db.SQL(`DELETE FROM queue_hold WHERE id = $1`)
	countHolds = db.SQL(`SELECT COUNT(*) FROM queue_hold`)
	hastenOpen = db.SQL(`UPDATE delivery SET due_at = CASE WHEN due_at > $3 THEN $3 ELSE due_at END
		WHERE message = $1 AND n = $2 AND tenure IS NULL AND state IN ('queued', 'deferred') RETURNING n`)
	insertNudge = db.SQL(`INSERT INTO queue_nudge (destination, at) VALUES ($1, $2) ON CONFLICT (destination) DO UPDATE SET at = excluded.at`)
	oldNudges   = db.SQL(`DELETE FROM queue_nudge WHERE at < $1`)
)

// Hold holds what the order chooses until it is released: no node tries it,
// and its time does not run out. By destination or account alone it stands, and
// holds what is to come as well. What a node has in hand is held when that lets
// go of it, unless it reaches an end by then.
func (o *Operator) Hold(ctx context.Context, or Order) (res Result, err error) {
	if err := or.Check(); err != nil {
		return res, err
	}
	id := heldItself
	if kind, target := or.standing(); kind != "" && !or.DryRun {
		if id, err = o.stand(ctx, &or, kind, target); err != nil {
			return res, err
		}
	}
	now := o.Now()
	err = o.each(ctx, &or, everywhere, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool { return e.Held })
		res.Matched += len(list)
		if or.DryRun || len(list) == 0 {
			return nil
		}
		parked, marked := 0, 0
		err := o.commit(ctx, list, func(e *Entry) db.Statement { return hold.With(e.Message, e.N, id, db.Micros(now)) },
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
		res.Changed, res.InHand = res.Changed+parked, res.InHand+marked
		return err
	})
	o.wake(signal.Hold)
	return res, err
}

// stand makes a standing hold, or finds it. An order that goes on makes none:
// it may have been ended meanwhile.
func (o *Operator) stand(ctx context.Context, or *Order, kind HoldKind, target string) (id db.ID, err error) {
	if or.After != "" {
		err := o.DB.One(ctx, holdOf.With(string(kind), target), &id)
		if errors.Is(err, db.ErrNoRow) {
			err = fault.New(fault.Conflict, "hold_ended", "This hold was released meanwhile.")
		}
		return id, err
	}
	err = o.withIDs(func() error {
		return o.DB.Tx(ctx, func(tx *db.Tx) error {
			if err := tx.Lock(ctx, "holds", 0); err != nil {
				return err
			}
			if err := tx.One(ctx, insertHold.With(o.DB.NewID(), string(kind), target, or.Reason, db.Micros(o.Now())), &id); err != nil {
				return err
			}
			var n int
			err := tx.One(ctx, countHolds.With(), &n)
			if err == nil && n > maxHolds {
				err = fault.New(fault.Conflict, "too_many_holds", "There can be %d standing holds. Release some.", maxHolds)
			}
			return err
		})
	})
	if err == nil {
		o.wake(signal.Hold)
	}
	return id, err
}

// Release ends a hold. By destination or account alone, and for all, it ends
// the standing one too. A delivery that another standing hold is on is kept.
// The time that each was held is added to its expiry.
func (o *Operator) Release(ctx context.Context, or Order) (res Result, err error) {
	if err := or.Check(); err != nil {
		return res, err
	}
	holds, err := readHolds(ctx, o.DB)
	if err != nil {
		return res, err
	}
	kind, target := or.standing()
	left := map[db.ID]bool{}
	for _, h := range holds {
		if or.After == "" && !or.Once && (or.All || h.Kind == kind && h.Target == target) {
			if !or.DryRun {
				if err := o.end(ctx, h.ID); err != nil {
					return res, err
				}
			}
			continue
		}
		left[h.ID] = true
	}
	now := o.Now()
	err = o.each(ctx, &or, []int{ofHand, ofHeld}, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool {
			if left[e.hold] {
				res.Kept++
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
		return o.commit(ctx, list, func(e *Entry) db.Statement { return release.With(e.Message, e.N, e.hold, db.Micros(now)) },
			func() {}, func(*Entry, db.Row) error { return nil })
	})
	o.wake(signal.Hold)
	o.wake(signal.Queue)
	return res, err
}

// withIDs repeats what was declined since another process made the same id:
// commands beside the nodes have no number of their own.
func (o *Operator) withIDs(try func() error) (err error) {
	for range 20 {
		if err = try(); !o.DB.IsConflict(err) {
			break
		}
	}
	return err
}

func (o *Operator) end(ctx context.Context, hold db.ID) error {
	_, err := o.DB.Exec(ctx, deleteHold.With(hold))
	return err
}

// Retry makes what waits due now, and has the nodes try destinations that they
// have put off. Of a single message what has failed is tried again too. What
// is scheduled, held or in hand is left as it is.
func (o *Operator) Retry(ctx context.Context, or Order) (res Result, err error) {
	if err := or.Check(); err != nil {
		return res, err
	}
	now := o.Now()
	to := map[string]bool{}
	err = o.each(ctx, &or, []int{ofWaiting}, &res, func(list []Entry) error {
		list = slices.DeleteFunc(list, func(e Entry) bool { return e.tenure != 0 || e.Held || e.state == Scheduled })
		res.Matched += len(list)
		if or.DryRun || len(list) == 0 {
			return nil
		}
		n := 0
		err := o.commit(ctx, list, func(e *Entry) db.Statement { return hastenOpen.With(e.Message, e.N, db.Micros(now)) },
			func() { n = 0 }, func(e *Entry, _ db.Row) error { n++; return nil })
		res.Changed += n
		for _, e := range list {
			to[e.Destination] = true
		}
		return err
	})
	if err == nil && or.Message != 0 {
		err = o.reviveFailed(ctx, &or, &res, to, now)
	}
	if len(to) > 0 {
		err = errors.Join(err, o.nudge(ctx, to, now))
	}
	return res, err
}

// nudge tells all nodes which destinations are wanted now.
func (o *Operator) nudge(ctx context.Context, to map[string]bool, now time.Time) error {
	var names []string
	for name := range to {
		names = append(names, name)
	}
	if slices.Sort(names); len(names) > changeRows {
		names = []string{anywhere}
	}
	err := o.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, oldNudges.With(db.Micros(now.Add(-nudgeLife)))); err != nil {
			return err
		}
		for _, name := range names {
			if _, err := tx.Exec(ctx, insertNudge.With(name, db.Micros(now))); err != nil {
				return err
			}
		}
		return nil
	})
	o.wake(signal.Hold)
	o.wake(signal.Queue)
	return err
}

// reviveFailed makes the failed deliveries of one message queued.
func (o *Operator) reviveFailed(ctx context.Context, or *Order, res *Result, to map[string]bool, now time.Time) error {
	all, err := db.All(ctx, o.DB, records.With(or.Message), scanRecord)
	if err != nil || or.Filter != (Filter{Message: or.Message}) {
		return err
	}
	about, err := o.about(ctx, or.Message, 0)
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
		err := o.withIDs(func() error {
			return o.DB.Tx(ctx, func(tx *db.Tx) error {
				c, err := readChanged(ctx, tx, revive.With(or.Message, r.N, db.Micros(now), db.Micros(now.Add(retryLife)), math.MaxInt32, 0))
				if done = c != nil; err != nil || !done {
					return err
				}
				to[c.destination] = true
				c.About, c.ID, c.Status = about, or.Message, Queued
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

// about is what events say about a message, also about one that is gone.
func (o *Operator) about(ctx context.Context, message, account db.ID) (About, error) {
	about, err := o.Describe(ctx, message)
	if fault.Is(err, fault.NotFound) {
		return About{Account: account}, nil
	}
	return about, err
}
