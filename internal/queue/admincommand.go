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

// Command selects deliveries and the options of an operation on them.
type Command struct {
	Filter
	All    bool   // must be set when the filter is empty
	Reason string // reason of a hold or a drop
	// ExistingOnly limits a hold or release to existing deliveries. Otherwise a hold by destination
	// or by account alone also holds future deliveries.
	ExistingOnly bool
	Silent       bool // the senders of dropped submissions get no bounce
	DryRun       bool // only count
	// Wait is how long a drop waits for nodes to release leased deliveries.
	Wait     time.Duration
	Progress func(Result) // called after each chunk; may be nil
	// Limit is the approximate maximum of rows to read; 0: all. After continues the same command
	// where Limit ended it: it is the Result's Next.
	Limit int
	After string
}

// Result counts deliveries.
type Result struct {
	Matched   int // deliveries that match the filter
	Changed   int // deliveries that were changed; none with DryRun
	Leased    int // leased deliveries: the node holds them on release, unless they become final
	StillHeld int // not released, because another hold applies
	// Next continues where Command.Limit ended the command; "" if the command is done.
	Next string
}

// maxChangedRows is the maximum of deliveries changed in one commit.
const maxChangedRows = 200

// maxReason is the maximum length of a reason, in bytes.
const maxReason = 500

// Check normalizes the command. It returns a fault.Invalid if a field is invalid.
func (or *Command) Check() error {
	var bad fault.FieldErrors
	if err := bad.Merge(or.Filter.Check()); err != nil {
		return err
	}
	if len(or.Reason) > maxReason {
		bad.Add("reason", "too_long", "A reason can have %d bytes.", maxReason)
	}
	or.Reason = db.CleanText(or.Reason, maxReason)
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

// holdTarget returns the kind and target of the hold that the command adds or removes; "" for none.
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

// allIndexes is the order in which a command walks the indexes. The leased index comes first and
// last, so that the walk meets deliveries that a node claims or releases in between.
var allIndexes = []int{indexLeased, indexWaiting, indexHeld, indexLeased}

// start returns the cursor where the command's walk begins.
func (or *Command) start() (listCursor, error) {
	at, err := parseCursor(or.After)
	if at.Pass < 0 || at.Pass > len(allIndexes) {
		err = errCursor
	}
	return at, err
}

// forEachChunk calls do with the deliveries that the command selects, in chunks.
func (o *Admin) forEachChunk(ctx context.Context, or *Command, places []int, res *Result, do func([]Entry) error) error {
	if or.Message != 0 {
		places = []int{indexWaiting} // one query reads all deliveries of a message
	}
	at, err := or.start()
	if err != nil {
		return err
	}
	seen := map[deliveryKey]bool{} // leased deliveries, whose index is walked twice
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

// processChunk calls do with the selected rows of one page.
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

// updateEntries runs one conditional update per entry in one commit. It calls changed with each row
// that an update returns.
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
	holdIDQuery       = db.SQL(`SELECT id FROM queue_hold WHERE kind = $1 AND target = $2`)
	deleteHoldQuery   = db.SQL(`DELETE FROM queue_hold WHERE id = $1`)
	countHoldsQuery   = db.SQL(`SELECT COUNT(*) FROM queue_hold`)
	retryWaitingQuery = db.SQL(`UPDATE delivery SET due_at = CASE WHEN due_at > $3 THEN $3 ELSE due_at END
		WHERE message = $1 AND n = $2 AND lease IS NULL AND state IN ('queued', 'deferred') RETURNING n`)
	insertRetryRequestQuery = db.SQL(`INSERT INTO retry_request (destination, at) VALUES ($1, $2) ON CONFLICT (destination) DO UPDATE SET at = excluded.at`)
	pruneRetryRequestsQuery = db.SQL(`DELETE FROM retry_request WHERE at < $1`)
)

// Hold holds the selected deliveries until they are released: no node attempts them, and their
// expiry is suspended. A hold by destination or account alone stays active and also holds future
// deliveries. The node holds a leased delivery when it releases it, unless it is final by then.
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
				var leaseID db.ID
				err := r.Scan(&leaseID)
				if leaseID == 0 {
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

// addHold adds an active hold, or finds the existing one. A continued command adds none: the hold
// may have been released in the meantime.
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

// Release releases held deliveries. A release by destination or account alone, or of all, also
// removes the active hold. A delivery stays held if another active hold applies. Release adds the
// time on hold to each delivery's expiry.
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
		// The count includes deliveries that a node released first, because the hold is gone.
		res.Changed += len(list)
		return o.updateEntries(ctx, list, func(e *Entry) db.Statement { return releaseHeldQuery.With(e.Message, e.N, e.hold, db.Micros(now)) },
			func() {}, func(*Entry, db.Row) error { return nil })
	})
	o.wake(notify.Hold)
	o.wake(notify.Queue)
	return res, err
}

// retryOnConflict repeats try after an id conflict. Commands in other processes have no node
// number, so two processes may generate the same id.
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

// Retry makes waiting deliveries due now, and makes the nodes try destinations that are in backoff.
// With a single message it also requeues failed deliveries. It leaves scheduled, held and leased
// deliveries unchanged.
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

// requestRetry makes all nodes try the destinations in to now.
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

// requeueFailed queues the failed deliveries of one message again.
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

// messageInfo returns the event data of a message. A deleted message has only its account.
func (o *Admin) messageInfo(ctx context.Context, message, account db.ID) (MessageInfo, error) {
	about, err := o.Describe(ctx, message)
	if fault.Is(err, fault.NotFound) {
		return MessageInfo{Account: account}, nil
	}
	return about, err
}
