// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"time"
)

// Agent carries deliveries to one kind of destination: into mailboxes here,
// or to other hosts by SMTP.
type Agent interface {
	// Concurrency says how many runs shall work for a destination at the same time
	// when so many deliveries wait for it; at least 1 is taken. It must not
	// block or call the queue.
	Concurrency(waiting int) int
	// Deliver works through a run: it takes consignments by r.Next until that
	// returns nil, and reports each by r.Done or r.Trouble, so that many
	// messages can share a connection. It may take the next before it
	// reported the last (pipelining). What it took and did not report when it
	// returns is deferred. ctx ends when the attempt must be given up.
	Deliver(ctx context.Context, r *Session)
}

const (
	// maxRecipients bounds the recipients of one transaction (RFC 5321
	// §4.5.3.1.8: a host takes 100 at least).
	maxRecipients = 100
	// maxTransactionsPerTurn is how many consignments a run takes while other destinations
	// wait for a run.
	maxTransactionsPerTurn = 100
	// maxRequeues is how often a delivery is put back as untried in a row.
	maxRequeues = 3
	// maxWaitingPerSlot is how many runs wait aside for each that may work.
	maxWaitingPerSlot = 4
)

// Transaction is what one SMTP transaction carries: a message to one recipient,
// or, for mail that a mailbox submitted, to several of the same destination.
type Transaction struct {
	Mail       *OutboundMessage
	From       string      // MAIL FROM without angle brackets; "" is the null sender
	Deliveries []*Delivery // at least one, at most 100

	takenAt time.Time
}

// Session is a courier's work for one destination. Its methods serve one goroutine
// at a time.
type Session struct {
	q            *Queue
	ctx          context.Context
	d            *destination
	s            *accountLoad
	nextCalled   bool
	transactions int
	open         []*Transaction // taken and not reported
}

// Destination returns the domain that the run is for: A-labels, lower case.
func (r *Session) Destination() string { return r.d.name }

// Next returns the next consignment, or nil when the run shall end: nothing
// waits at this moment, another destination needs the place, or the queue is
// ending. It may load and sign a message, but never waits for one to come.
func (r *Session) Next() *Transaction {
	r.nextCalled = true
	for {
		c := r.q.nextTransaction(r)
		if c == nil {
			return nil
		}
		if r.q.prepareTransaction(r.ctx, c) {
			r.transactions++
			r.open = append(r.open, c)
			return c
		}
	}
}

// Finish reports what became of a consignment: one outcome per recipient in
// their order, or a single one for all. A second report is ignored.
func (r *Session) Finish(c *Transaction, outcomes ...Outcome) {
	if !r.close(c) {
		return
	}
	if slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.State != Queued }) {
		r.q.markReachable(r.d)
	}
	for i, d := range c.Deliveries {
		o := interruptedOutcome
		switch {
		case len(outcomes) == 1:
			o = outcomes[0]
		case i < len(outcomes):
			o = outcomes[i]
		}
		r.q.handleOutcome(c, d, o)
	}
}

// interruptedOutcome stands in for an outcome that a courier did not give.
var interruptedOutcome = Outcome{State: Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"}

// Owns reports whether a consignment is still this node's to carry. A node that
// stood still may find that another has taken over what it had in hand, and
// carried it. So ask before what can't be undone, such as the final dot, and
// report what is not ours any more as Queued.
func (r *Session) Owns(c *Transaction) bool {
	return r.q.o.Node.OwnsLease(c.Deliveries[0].lease) // take sees to it that all have one
}

// FailDestination reports that the destination as a whole can't be reached: c is
// deferred, with one outcome per recipient or a single one for all, the rest of
// what is in hand for the destination is put off, and after a while one run
// tries again. End the run after it.
func (r *Session) FailDestination(c *Transaction, outcomes ...Outcome) {
	if !r.close(c) {
		return
	}
	q := r.q
	now := q.o.Now()
	q.mu.Lock()
	ready := q.backOff(r.d, now)
	until := r.d.backoffUntil
	q.mu.Unlock()
	for i, d := range c.Deliveries {
		o := outcomes[min(i, len(outcomes)-1)]
		o.State = Deferred
		o.RetryAfter = max(o.RetryAfter, until.Sub(now))
		r.q.handleOutcome(c, d, o)
	}
	q.release(ready, until, &outcomes[0])
}

// ReleaseSlot says that the run begins to wait for something that may take long: its
// place among the runs is for others until back is called. It is not ok when
// too many wait like that, or too much is in hand: then Pause is better.
func (r *Session) ReleaseSlot() (back func(), ok bool) {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waitingSessions >= maxWaitingPerSlot*q.o.MaxSessions || q.slotsUsed > q.o.Capacity/2 {
		return nil, false
	}
	q.waitingSessions++
	q.sessions--
	r.s.waitingSessions++
	r.s.sessions--
	q.startWaiting()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waitingSessions--
		q.sessions++
		r.s.waitingSessions--
		r.s.sessions++
	}, true
}

// PauseDestination reports that the destination's hosts take nothing before until, without
// having said anything about the mail: what the run took and did not report,
// and, if no other run is at work, what is in hand, goes back to its rows
// untried, with why as its last answer. No run begins until then; those at work
// go on. End the run after it.
func (r *Session) PauseDestination(until time.Time, why Outcome) {
	q, d := r.q, r.d
	var back []*Delivery
	for len(r.open) > 0 {
		c := r.open[0]
		r.close(c)
		back = append(back, c.Deliveries...)
	}
	r.nextCalled = true
	q.mu.Lock()
	d.throttled = true
	if until.After(d.pausedUntil) {
		d.pausedUntil = until
		q.wakeAt(until)
	}
	if d.sessions <= 1 {
		if d.pausedUntil.After(d.backoffUntil) {
			d.backoffUntil = d.pausedUntil
		}
		back = append(back, d.ready...)
		d.ready, d.reachable = nil, false
	}
	until = d.pausedUntil
	q.mu.Unlock()
	q.release(back, until, &why)
}

// close notes that a consignment is being reported.
func (r *Session) close(c *Transaction) bool {
	i := slices.Index(r.open, c)
	if i < 0 {
		return false
	}
	r.open = slices.Delete(r.open, i, i+1)
	r.q.messages.release(c.Mail.ID)
	return true
}

// runSession is one run from its beginning to its end.
func (q *Queue) runSession(d *destination, s *accountLoad) {
	defer q.work.Done()
	r := &Session{q: q, ctx: q.attemptCtx, d: d, s: s}
	courier, err := q.o.ChooseAgent(q.attemptCtx, d.name)
	if err == nil {
		q.mu.Lock()
		d.agent = courier
		q.mu.Unlock()
		courier.Deliver(q.attemptCtx, r)
	} else if c := r.Next(); c != nil {
		q.o.Log.Warn("no courier for a destination", "destination", d.name, "error", err)
		r.FailDestination(c, Outcome{Enhanced: "4.3.5", Stage: "route", Reply: "the way to the destination could not be found out"})
	}
	for len(r.open) > 0 {
		r.Finish(r.open[0], interruptedOutcome)
	}
	q.mu.Lock()
	d.sessions--
	q.sessions--
	s.sessions--
	var idle []*Delivery
	if !r.nextCalled {
		// A courier that takes nothing would be called again at once, for ever.
		idle = q.backOff(d, q.o.Now())
	}
	until := d.backoffUntil
	q.startWaiting() // first: a backlog would have the place again, and again
	q.startSessions(d)
	q.removeIdleDestination(d)
	q.removeIdleAccount(s)
	q.mu.Unlock()
	q.release(idle, until, nil)
}

// nextTransaction pops the next consignment of a run's destination, not yet loaded.
func (q *Queue) nextTransaction(r *Session) *Transaction {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenure, ok := q.usableLease()
	now := q.o.Now()
	if !ok || now.Before(r.d.backoffUntil) || r.transactions >= maxTransactionsPerTurn && len(q.waitingAccounts) > 0 {
		return nil
	}
	c := &Transaction{takenAt: now}
	for i := 0; i < len(r.d.ready) && len(c.Deliveries) < maxRecipients; {
		next := r.d.ready[i]
		if q.overriding[next.Message] > 0 {
			i++
			continue
		}
		if len(c.Deliveries) > 0 && !mayShareTransaction(c.Deliveries[0], next) {
			break
		}
		r.d.ready = removeAt(r.d.ready, i)
		if next.lease != tenure { // its row is being taken over
			q.forget(next)
			continue
		}
		next.inFlight = true
		q.inFlight++
		c.Deliveries = append(c.Deliveries, next)
	}
	if len(c.Deliveries) == 0 {
		return nil
	}
	r.d.progressAt = now
	q.startSessions(r.d)
	return c
}

// removeAt takes out the element at i, cheaply where it is the first.
func removeAt[T any](list []*T, i int) []*T {
	if i > 0 {
		return slices.Delete(list, i, i+1)
	}
	list[0] = nil
	return list[1:]
}

// mayShareTransaction reports whether two deliveries may share a transaction: only mail
// that a mailbox submitted, since API mail has a return path per delivery, and
// no blind copies.
func mayShareTransaction(a, b *Delivery) bool {
	return a.Message == b.Message && a.Kind == kindEnvelope && b.Kind == kindEnvelope
}
