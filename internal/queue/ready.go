// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

const (
	// fresh is how long a delivery may wait in memory before its row is
	// looked at once more: on another node it may have been cancelled.
	fresh = time.Second
	// troubleWait is for how long our own trouble with a message puts it off.
	troubleWait = time.Minute
)

// ready completes a consignment for its courier. It returns false when nothing
// of it is to be carried.
func (q *Queue) ready(ctx context.Context, c *Consignment) bool {
	now := q.o.Now()
	c.To = slices.DeleteFunc(c.To, func(d *Delivery) bool { return !q.current(ctx, d, now) })
	if len(c.To) == 0 {
		return false
	}
	first := c.To[0]
	mail, err := q.mails.use(ctx, first.Message)
	if err != nil {
		q.unprepared(c.To, err)
		return false
	}
	c.Mail = mail
	c.From = mail.Sender
	if mail.ReturnDomain != "" {
		c.From = q.o.Key.ReturnPath(int64(first.Message), first.N) + "@" + mail.ReturnDomain
	}
	return true
}

// current reports whether a delivery may still be tried, and otherwise ends or
// forgets it.
func (q *Queue) current(ctx context.Context, d *Delivery, now time.Time) bool {
	if now.Sub(d.seen) >= fresh {
		there, held, err := q.stillOurs(ctx, d)
		if err != nil {
			q.o.Log.Error("a delivery could not be looked at", "message", d.Message, "n", d.N, "error", err)
			q.release([]*Delivery{d}, now.Add(jitter(troubleWait)), nil)
			return false
		}
		if held {
			q.release([]*Delivery{d}, time.Time{}, nil)
			return false
		}
		if !there {
			q.mu.Lock()
			q.forget(d)
			q.mu.Unlock()
			return false
		}
		d.seen = now
	}
	if !now.Before(d.ExpiresAt) {
		q.conclude(d, verdict{Outcome: d.expired(), expired: true})
		return false
	}
	return true
}

var stillThere = db.SQL(`SELECT state, hold > 0 FROM delivery WHERE message = $1 AND n = $2 AND tenure = $3 AND tenure IS NOT NULL
	AND state IN ('scheduled', 'queued', 'deferred')`)

// stillOurs reports whether a delivery's row is still ours and open, and
// whether it is to be held.
func (q *Queue) stillOurs(ctx context.Context, d *Delivery) (there, held bool, err error) {
	err = q.o.DB.One(ctx, stillThere.With(d.Message, d.N, d.tenure), &d.state, &held)
	if errors.Is(err, db.ErrNoRow) {
		return false, false, nil
	}
	return err == nil, held, err
}

// unprepared ends or puts off the deliveries of a message that can't be loaded.
func (q *Queue) unprepared(ds []*Delivery, err error) {
	var f *fault.Error
	if errors.As(err, &f) && (f.Kind == fault.NotFound || f.Kind == fault.Denied) {
		if f.Kind == fault.NotFound && f.Cause != nil { // it is our fault
			q.o.Log.Error("a message can't be sent any more", "message", ds[0].Message, "error", err)
		}
		for _, d := range ds {
			q.conclude(d, verdict{Outcome: Outcome{State: Failed, Enhanced: "5.3.0", Stage: "local", Reply: f.Message}})
		}
		return
	}
	q.o.Log.Error("a message could not be prepared for sending", "message", ds[0].Message, "error", err)
	q.release(ds, q.o.Now().Add(jitter(troubleWait)), nil)
}
