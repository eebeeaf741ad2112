// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"time"
)

// Courier carries deliveries to one kind of destination: into mailboxes here,
// or to other hosts by SMTP.
type Courier interface {
	// Runs says how many runs shall work for a destination at the same time
	// when so many deliveries wait for it; at least 1 is taken. It must not
	// block or call the queue.
	Runs(waiting int) int
	// Carry works through a run: it takes consignments by r.Next until that
	// returns nil, and reports each by r.Done or r.Trouble, so that many
	// messages can share a connection. It may take the next before it
	// reported the last (pipelining). What it took and did not report when it
	// returns is deferred. ctx ends when the attempt must be given up.
	Carry(ctx context.Context, r *Run)
}

const (
	// maxTogether bounds the recipients of one transaction (RFC 5321
	// §4.5.3.1.8: a host takes 100 at least).
	maxTogether = 100
	// share is how many consignments a run takes while other destinations
	// wait for a run.
	share = 100
	// maxAgain is how often a delivery is put back as untried in a row.
	maxAgain = 3
	// maxAside is how many runs wait aside for each that may work.
	maxAside = 4
)

// Consignment is what one SMTP transaction carries: a message to one recipient,
// or, for mail that a mailbox submitted, to several of the same destination.
type Consignment struct {
	Mail *Mail
	From string      // MAIL FROM without angle brackets; "" is the null sender
	To   []*Delivery // at least one, at most 100

	taken time.Time
}

// Run is a courier's work for one destination. Its methods serve one goroutine
// at a time.
type Run struct {
	q     *Queue
	ctx   context.Context
	d     *destination
	s     *sender
	asked bool
	taken int
	open  []*Consignment // taken and not reported
}

// Destination returns the domain that the run is for: A-labels, lower case.
func (r *Run) Destination() string { return r.d.name }

// Next returns the next consignment, or nil when the run shall end: nothing
// waits at this moment, another destination needs the place, or the queue is
// ending. It may load and sign a message, but never waits for one to come.
func (r *Run) Next() *Consignment {
	r.asked = true
	for {
		c := r.q.take(r)
		if c == nil {
			return nil
		}
		if r.q.ready(r.ctx, c) {
			r.taken++
			r.open = append(r.open, c)
			return c
		}
	}
}

// Done reports what became of a consignment: one outcome per recipient in
// their order, or a single one for all. A second report is ignored.
func (r *Run) Done(c *Consignment, outcomes ...Outcome) {
	if !r.close(c) {
		return
	}
	if slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.State != Queued }) {
		r.q.answered(r.d)
	}
	for i, d := range c.To {
		o := unreported
		switch {
		case len(outcomes) == 1:
			o = outcomes[0]
		case i < len(outcomes):
			o = outcomes[i]
		}
		r.q.report(c, d, o)
	}
}

// unreported stands in for an outcome that a courier did not give.
var unreported = Outcome{State: Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"}

// Ours reports whether a consignment is still this node's to carry. A node that
// stood still may find that another has taken over what it had in hand, and
// carried it. So ask before what can't be undone, such as the final dot, and
// report what is not ours any more as Queued.
func (r *Run) Ours(c *Consignment) bool {
	return r.q.o.Node.Holds(c.To[0].tenure) // take sees to it that all have one
}

// Trouble reports that the destination as a whole can't be reached: c is
// deferred, with one outcome per recipient or a single one for all, the rest of
// what is in hand for the destination is put off, and after a while one run
// tries again. End the run after it.
func (r *Run) Trouble(c *Consignment, outcomes ...Outcome) {
	if !r.close(c) {
		return
	}
	q := r.q
	now := q.o.Now()
	q.mu.Lock()
	ready := q.putOff(r.d, now)
	until := r.d.until
	q.mu.Unlock()
	for i, d := range c.To {
		o := outcomes[min(i, len(outcomes)-1)]
		o.State = Deferred
		o.Retry = max(o.Retry, until.Sub(now))
		r.q.report(c, d, o)
	}
	q.release(ready, until, &outcomes[0])
}

// Aside says that the run begins to wait for something that may take long: its
// place among the runs is for others until back is called. It is not ok when
// too many wait like that, or too much is in hand: then Pause is better.
func (r *Run) Aside() (back func(), ok bool) {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.aside >= maxAside*q.o.Runs || q.held > q.o.Places/2 {
		return nil, false
	}
	q.aside++
	q.runs--
	r.s.aside++
	r.s.runs--
	q.startLine()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.aside--
		q.runs++
		r.s.aside--
		r.s.runs++
	}, true
}

// Pause reports that the destination's hosts take nothing before until, without
// having said anything about the mail: what the run took and did not report,
// and, if no other run is at work, what is in hand, goes back to its rows
// untried, with why as its last answer. No run begins until then; those at work
// go on. End the run after it.
func (r *Run) Pause(until time.Time, why Outcome) {
	q, d := r.q, r.d
	var back []*Delivery
	for len(r.open) > 0 {
		c := r.open[0]
		r.close(c)
		back = append(back, c.To...)
	}
	r.asked = true
	q.mu.Lock()
	d.slowed = true
	if until.After(d.rest) {
		d.rest = until
		q.wakeAt(until)
	}
	if d.runs <= 1 {
		if d.rest.After(d.until) {
			d.until = d.rest
		}
		back = append(back, d.ready...)
		d.ready, d.proven = nil, false
	}
	until = d.rest
	q.mu.Unlock()
	q.release(back, until, &why)
}

// close notes that a consignment is being reported.
func (r *Run) close(c *Consignment) bool {
	i := slices.Index(r.open, c)
	if i < 0 {
		return false
	}
	r.open = slices.Delete(r.open, i, i+1)
	r.q.mails.unuse(c.Mail.ID)
	return true
}

// conduct is one run from its beginning to its end.
func (q *Queue) conduct(d *destination, s *sender) {
	defer q.work.Done()
	r := &Run{q: q, ctx: q.carry, d: d, s: s}
	courier, err := q.o.Choose(q.carry, d.name)
	if err == nil {
		q.mu.Lock()
		d.courier = courier
		q.mu.Unlock()
		courier.Carry(q.carry, r)
	} else if c := r.Next(); c != nil {
		q.o.Log.Warn("no courier for a destination", "destination", d.name, "error", err)
		r.Trouble(c, Outcome{Enhanced: "4.3.5", Stage: "route", Reply: "the way to the destination could not be found out"})
	}
	for len(r.open) > 0 {
		r.Done(r.open[0], unreported)
	}
	q.mu.Lock()
	d.runs--
	q.runs--
	s.runs--
	var idle []*Delivery
	if !r.asked {
		// A courier that takes nothing would be called again at once, for ever.
		idle = q.putOff(d, q.o.Now())
	}
	until := d.until
	q.startLine() // first: a backlog would have the place again, and again
	q.start(d)
	q.tidy(d)
	q.dismiss(s)
	q.mu.Unlock()
	q.release(idle, until, nil)
}

// take pops the next consignment of a run's destination, not yet loaded.
func (q *Queue) take(r *Run) *Consignment {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenure, ok := q.able()
	now := q.o.Now()
	if !ok || now.Before(r.d.until) || r.taken >= share && len(q.line) > 0 {
		return nil
	}
	c := &Consignment{taken: now}
	for i := 0; i < len(r.d.ready) && len(c.To) < maxTogether; {
		next := r.d.ready[i]
		if q.overruling[next.Message] > 0 {
			i++
			continue
		}
		if len(c.To) > 0 && !together(c.To[0], next) {
			break
		}
		r.d.ready = remove(r.d.ready, i)
		if next.tenure != tenure { // its row is being taken over
			q.forget(next)
			continue
		}
		next.carried = true
		q.carried++
		c.To = append(c.To, next)
	}
	if len(c.To) == 0 {
		return nil
	}
	r.d.moved = now
	q.start(r.d)
	return c
}

// remove takes out the element at i, cheaply where it is the first.
func remove[T any](list []*T, i int) []*T {
	if i > 0 {
		return slices.Delete(list, i, i+1)
	}
	list[0] = nil
	return list[1:]
}

// together reports whether two deliveries may share a transaction: only mail
// that a mailbox submitted, since API mail has a return path per delivery, and
// no blind copies.
func together(a, b *Delivery) bool {
	return a.Message == b.Message && a.Kind == kindEnvelope && b.Kind == kindEnvelope
}
