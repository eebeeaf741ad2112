// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"time"
)

// Agent makes the attempts for one kind of destination: mailboxes here, or other hosts by SMTP.
type Agent interface {
	// Concurrency returns how many sessions should run for a destination at once when so many
	// deliveries wait for it. The minimum is 1. It must not block or call the queue.
	Concurrency(waiting int) int
	// Deliver runs a session: it takes transactions from r.Next until that returns nil, and reports
	// each by r.Finish, r.FailDestination or r.PauseDestination, so that many messages can share a
	// connection. It may take the next transaction before it reports the last one (pipelining).
	// Transactions that it did not report when it returns are deferred. When ctx ends, the agent
	// must give up the attempt.
	Deliver(ctx context.Context, r *Session)
}

const (
	// maxRecipients is the maximum of recipients in one transaction. A host must accept at least
	// 100 (RFC 5321 §4.5.3.1.8).
	maxRecipients = 100
	// maxTransactionsPerTurn is how many transactions a session takes while other destinations wait
	// for a session.
	maxTransactionsPerTurn = 100
	// maxRequeues is how often in a row a delivery may be put back as untried.
	maxRequeues = 3
	// maxWaitingPerSlot is the maximum of sessions without a slot, as a multiple of MaxSessions.
	maxWaitingPerSlot = 4
)

// Transaction is the content of one SMTP transaction: a message to one recipient or, for mail that
// a mailbox submitted, to several recipients of the same destination.
type Transaction struct {
	Mail       *OutboundMessage
	From       string      // MAIL FROM without angle brackets; "" is the null sender
	Deliveries []*Delivery // at least one, at most 100

	takenAt time.Time
}

// Session is a delivery agent's work for one destination. Its methods must not be called
// concurrently.
type Session struct {
	q            *Queue
	ctx          context.Context
	d            *destination
	s            *accountLoad
	nextCalled   bool
	transactions int
	open         []*Transaction // taken and not yet reported
}

// Destination returns the session's domain: A-labels, lower case.
func (r *Session) Destination() string { return r.d.name }

// Next returns the next transaction, or nil when the session must end: no delivery is ready,
// another destination needs the slot, or the queue is stopping. It may load and sign a message, but
// never waits for a delivery.
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

// Finish reports the result of a transaction: one outcome per recipient in their order, or a single
// one for all. It ignores a second report.
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

// interruptedOutcome is the outcome of deliveries that a delivery agent did not report.
var interruptedOutcome = Outcome{State: Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"}

// Owns reports whether this node still has the lease of a transaction. After a node stalled,
// another node may have taken over its deliveries and sent them. So call Owns before an
// irreversible step, such as the final dot, and report transactions without a lease as Queued.
func (r *Session) Owns(c *Transaction) bool {
	return r.q.o.Node.OwnsLease(c.Deliveries[0].lease) // nextTransaction ensures that all have the same lease
}

// FailDestination reports that the destination as a whole can't be reached. It defers c, with one
// outcome per recipient or a single one for all, and releases the other ready deliveries of the
// destination. After a while one session tries again. End the session after the call.
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

// ReleaseSlot gives up the session's slot before a wait that may take long, until the caller calls
// back. ok is false if too many sessions wait that way, or too many slots are in use: use
// PauseDestination then.
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

// PauseDestination reports that the destination's hosts take no mail before until, without a reply
// about the messages. It releases, as untried and with why as their last reply, the transactions
// that the session did not report and, if no other session is at work, the destination's ready
// deliveries. No session starts until then; running ones continue. End the session after the call.
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

// close removes a transaction that is being reported from the open ones.
func (r *Session) close(c *Transaction) bool {
	i := slices.Index(r.open, c)
	if i < 0 {
		return false
	}
	r.open = slices.Delete(r.open, i, i+1)
	r.q.messages.release(c.Mail.ID)
	return true
}

// runSession runs one session from beginning to end.
func (q *Queue) runSession(d *destination, s *accountLoad) {
	defer q.work.Done()
	r := &Session{q: q, ctx: q.attemptCtx, d: d, s: s}
	deliveryAgent, err := q.o.ChooseAgent(q.attemptCtx, d.name)
	if err == nil {
		q.mu.Lock()
		d.agent = deliveryAgent
		q.mu.Unlock()
		deliveryAgent.Deliver(q.attemptCtx, r)
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
		// An agent that takes no transaction would otherwise be called again at once, endlessly.
		idle = q.backOff(d, q.o.Now())
	}
	until := d.backoffUntil
	q.startWaiting() // first: otherwise a destination with a backlog would keep the slot
	q.startSessions(d)
	q.removeIdleDestination(d)
	q.removeIdleAccount(s)
	q.mu.Unlock()
	q.release(idle, until, nil)
}

// nextTransaction removes the next transaction of a session's destination from the ready list. Its
// message is not loaded yet.
func (q *Queue) nextTransaction(r *Session) *Transaction {
	q.mu.Lock()
	defer q.mu.Unlock()
	leaseID, ok := q.usableLease()
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
		if next.lease != leaseID { // its row is being taken over
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

// removeAt removes the element at i, cheaply if it is the first.
func removeAt[T any](list []*T, i int) []*T {
	if i > 0 {
		return slices.Delete(list, i, i+1)
	}
	list[0] = nil
	return list[1:]
}

// mayShareTransaction reports whether two deliveries may share a transaction. That applies only to
// mail that a mailbox submitted, since API mail has a return path per delivery, and not to blind
// copies.
func mayShareTransaction(a, b *Delivery) bool {
	return a.Message == b.Message && a.Kind == kindEnvelope && b.Kind == kindEnvelope
}
