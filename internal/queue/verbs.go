// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
)

// retryLife is how long a failed delivery is tried again whose time was over.
const retryLife = 72 * time.Hour

// A customer may retry a delivery at any time until it was tried freeRetries times, then
// retryRest after the last attempt: a host that asks us to wait is not to be hammered,
// nor each attempt's conversation to be kept without limit.
const (
	freeRetries = 5
	retryRest   = 5 * time.Minute
)

var (
	numbers = db.SQL(`SELECT n FROM delivery WHERE message = $1 ORDER BY n`)
	finish  = db.SQL(`UPDATE delivery SET state = $3, tenure = NULL, hold = 0, sequence = sequence + 1,
			reply = CASE WHEN $4 = '' THEN reply ELSE $4 END, updated_at = $5
		WHERE message = $1 AND n = $2 AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING account, recipient, destination, attempts, sequence, code, enhanced, reply, remote`)
	revive = db.SQL(`UPDATE delivery SET state = 'queued', due_at = $3, sequence = sequence + 1, updated_at = $3, late_at = 0,
			expires_at = CASE WHEN expires_at <= $3 THEN $4 ELSE expires_at END
		WHERE message = $1 AND n = $2 AND state = 'failed' AND (attempts < $5 OR updated_at <= $6)
		RETURNING account, recipient, destination, attempts, sequence, code, enhanced, reply, remote`)
	hasten = db.SQL(`UPDATE delivery SET due_at = $3
		WHERE message = $1 AND n = $2 AND state = 'deferred' AND (tenure IS NULL OR tenure = 0) AND (attempts < $4 OR updated_at <= $5)
		RETURNING account, recipient, destination, attempts, sequence, code, enhanced, reply, remote`)
	retryable = db.SQL(`SELECT updated_at FROM delivery WHERE message = $1 AND (state = 'failed' OR state = 'deferred' AND (tenure IS NULL OR tenure = 0))
		ORDER BY updated_at LIMIT 1`)
	move = db.SQL(`UPDATE delivery SET due_at = $2, expires_at = $3, updated_at = $4,
			late_at = CASE WHEN late_at > 0 THEN $2 + (late_at - due_at) ELSE 0 END
		WHERE message = $1 AND state = 'scheduled' AND (tenure IS NULL OR tenure = 0)`)
)

// Cancel ends the deliveries of a message that are scheduled, queued or
// deferred, and returns how many it ended. One that a courier has at this
// moment is left to its outcome. A fault.Conflict says that there was nothing
// left to cancel. On another node an attempt may have begun a moment before:
// then the state is cancelled, and the recipient may have the mail all the same.
func (q *Queue) Cancel(ctx context.Context, message db.ID) (int, error) {
	n, err := q.end(ctx, message, Cancelled, "")
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "not_cancellable", "Nothing of this message is left that can be cancelled.")
	}
	return n, err
}

// Fail ends the deliveries of a message that are not final yet as failed: an
// operator drops them, or their account is suspended. It returns how many; one
// that a courier has at this moment is left to its outcome.
func (q *Queue) Fail(ctx context.Context, message db.ID, reason string) (int, error) {
	return q.end(ctx, message, Failed, clean(reason, maxReply))
}

// end ends what is open and not carried.
func (q *Queue) end(ctx context.Context, message db.ID, state State, reason string) (int, error) {
	return q.overrule(ctx, message, func(tx *db.Tx, about About, n int) (bool, error) {
		s, err := q.change(ctx, tx, about, finish.With(message, n, string(state), reason, db.Micros(q.o.Now())), message, state)
		return s != nil, err
	})
}

// Retry makes failed and deferred deliveries due now, and returns how many. A
// fault.Conflict says that there are none, a fault.Limited that they were tried just
// now, and often before.
func (q *Queue) Retry(ctx context.Context, message db.ID) (int, error) {
	var to []string
	now := q.o.Now()
	n, err := q.overrule(ctx, message, func(tx *db.Tx, about About, n int) (bool, error) {
		s, err := q.change(ctx, tx, about, revive.With(message, n, db.Micros(now), db.Micros(now.Add(retryLife)), freeRetries, db.Micros(now.Add(-retryRest))), message, Queued)
		if s == nil && err == nil {
			s, err = readChanged(ctx, tx, hasten.With(message, n, db.Micros(now), freeRetries, db.Micros(now.Add(-retryRest))))
		}
		if s != nil {
			to = append(to, s.destination)
		}
		return s != nil, err
	})
	if err == nil && n == 0 {
		err = q.notRetried(ctx, message, now)
	}
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range to {
		d := q.dest(name)
		d.until, d.rest = time.Time{}, time.Time{}
		q.left(d)
	}
	return n, nil
}

// notRetried says why nothing of a message was retried.
func (q *Queue) notRetried(ctx context.Context, message db.ID, now time.Time) error {
	var last int64
	err := q.o.DB.One(ctx, retryable.With(message), &last)
	if errors.Is(err, db.ErrNoRow) {
		return fault.New(fault.Conflict, "not_retryable", "Nothing of this message has failed or is deferred.")
	}
	if err != nil {
		return err
	}
	f := fault.New(fault.Limited, "retried_just_now", "Delivery was tried just now, and %d times or more in all. Retry it %d minutes after the last attempt.", freeRetries, retryRest/time.Minute)
	f.Retry = max(time.Second, db.Time(last).Add(retryRest).Sub(now))
	return f
}

// Reschedule moves the deliveries of a message that are still scheduled; also,
// if not nil, is part of the same transaction. A fault.Conflict says that there
// are none.
func (q *Queue) Reschedule(ctx context.Context, message db.ID, due, expires time.Time, also func(*db.Tx) error) error {
	err := q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, move.With(message, db.Micros(due), db.Micros(expires), db.Micros(q.o.Now())))
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "not_scheduled", "Nothing of this message is still scheduled.")
		}
		if err == nil && also != nil {
			err = also(tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeAt(due)
	return nil
}

// overrule changes the deliveries of a message that no courier has. While it
// does so none of them is given to one, and what is in hand looks at its row
// before it is: so exactly one of the change and the attempt wins.
func (q *Queue) overrule(ctx context.Context, message db.ID, each func(tx *db.Tx, about About, n int) (bool, error)) (int, error) {
	all, err := db.All(ctx, q.o.DB, numbers.With(message), func(r db.Row) (n int, err error) { return n, r.Scan(&n) })
	if err != nil || len(all) == 0 {
		return 0, err
	}
	about, err := q.o.Describe(ctx, message)
	if err != nil {
		return 0, err
	}
	carried := map[int]bool{}
	q.mu.Lock()
	q.overruling[message]++
	for _, n := range all {
		d := q.hand[place{message, n}]
		carried[n] = d != nil && (d.carried || d.tenure == 0)
	}
	q.mu.Unlock()
	defer q.overruledNow(message, all)
	count := 0
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		count = 0
		for _, n := range all {
			if carried[n] {
				continue
			}
			changed, err := each(tx, about, n)
			if err != nil {
				return err
			}
			if changed {
				count++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}

func (q *Queue) overruledNow(message db.ID, all []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.overruling[message]--; q.overruling[message] == 0 {
		delete(q.overruling, message)
	}
	q.overruledRows(message, all)
}

// overruledRows makes what is in hand look at its row. q.mu is held.
func (q *Queue) overruledRows(message db.ID, all []int) {
	q.overruled++
	for _, n := range all {
		if d := q.hand[place{message, n}]; d != nil && !d.carried {
			d.seen = time.Time{}
			q.start(d.dest)
		}
	}
}

// changed is a delivery as a conditional update left it.
type changed struct {
	statusData
	destination string
}

// readChanged runs a conditional update; nil says that it changed nothing.
func readChanged(ctx context.Context, tx *db.Tx, s db.Statement) (*changed, error) {
	var c changed
	err := tx.One(ctx, s, &c.Account, &c.Recipient, &c.destination, &c.Attempts, &c.Sequence,
		&c.Code, &c.Enhanced, &c.Reply, &c.Remote)
	if errors.Is(err, db.ErrNoRow) {
		return nil, nil
	}
	return &c, err
}

// change runs a conditional update that fires one delivery_status.
func (q *Queue) change(ctx context.Context, tx *db.Tx, about About, s db.Statement, message db.ID, state State) (*changed, error) {
	c, err := readChanged(ctx, tx, s)
	if err != nil || c == nil {
		return nil, err
	}
	c.About, c.ID, c.Status = about, message, state
	c.Sequence--
	return c, q.recordAll(ctx, tx, c.events(nil))
}

func (q *Queue) recordAll(ctx context.Context, tx *db.Tx, events []event.New) error {
	for _, e := range events {
		if err := q.o.Events.Record(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}
