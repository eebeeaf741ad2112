// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/queue/dispatch"
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

// maxRequeues is how often in a row a delivery may be put back as untried.
const maxRequeues = 3

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
	q          *Queue
	ctx        context.Context
	dispatched *dispatch.Session[*Delivery]
	open       []*Transaction // taken and not yet reported

	pauseReason *Outcome // why PauseDestination was called
}

// Destination returns the session's domain: A-labels, lower case.
func (r *Session) Destination() string { return r.dispatched.Destination() }

// Next returns the next transaction, or nil when the session must end: no delivery is ready,
// another destination needs the slot, or the queue is stopping. It may load and sign a message, but
// never waits for a delivery.
func (r *Session) Next() *Transaction {
	for {
		c := r.take()
		if c == nil {
			return nil
		}
		if r.q.prepareTransaction(r.ctx, c) {
			r.dispatched.CountTransaction()
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
		r.q.mu.Lock()
		r.q.dispatch.MarkReachable(r.dispatched)
		r.q.mu.Unlock()
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
	return r.q.o.Node.OwnsLease(c.Deliveries[0].Lease) // dispatch.Take ensures that all have the same lease
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
	ready, until := q.dispatch.BackOff(r.dispatched)
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
	if !q.dispatch.ReleaseSlot(r.dispatched) {
		return nil, false
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dispatch.ReturnSlot(r.dispatched)
	}, true
}

// PauseDestination reports that the destination's hosts take no mail before until, without a reply
// about the messages. It releases, as untried and with why as their last reply, the transactions
// that the session did not report. No session starts until then; running ones continue, and when
// the last of them ends, the destination's ready deliveries are released likewise. End the session
// after the call.
func (r *Session) PauseDestination(until time.Time, why Outcome) {
	q := r.q
	var back []*Delivery
	for len(r.open) > 0 {
		c := r.open[0]
		r.close(c)
		back = append(back, c.Deliveries...)
	}
	r.pauseReason = &why
	q.mu.Lock()
	until = q.dispatch.PauseDestination(r.dispatched, until)
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

// startSession starts a session. q.mu is held.
func (q *Queue) startSession(s *dispatch.Session[*Delivery]) {
	q.work.Add(1)
	go q.runSession(s)
}

// runSession runs one session from beginning to end.
func (q *Queue) runSession(s *dispatch.Session[*Delivery]) {
	defer q.work.Done()
	r := &Session{q: q, ctx: q.attemptCtx, dispatched: s}
	agent, err := q.o.ChooseAgent(q.attemptCtx, r.Destination())
	if err == nil {
		q.mu.Lock()
		q.dispatch.SetAgent(s, agent)
		q.mu.Unlock()
		agent.Deliver(q.attemptCtx, r)
	} else if c := r.Next(); c != nil {
		q.o.Log.Warn("no delivery agent for a destination", "destination", r.Destination(), "error", err)
		r.FailDestination(c, Outcome{Enhanced: "4.3.5", Stage: "route", Reply: "the way to the destination could not be found out"})
	}
	for len(r.open) > 0 {
		r.Finish(r.open[0], interruptedOutcome)
	}
	q.mu.Lock()
	idle, until := q.dispatch.EndSession(s)
	q.mu.Unlock()
	q.release(idle, until, r.pauseReason)
}

// take takes the next transaction of the session's destination, nil for none. Its message is not
// loaded yet.
func (r *Session) take() *Transaction {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	taken := r.q.dispatch.Take(r.dispatched)
	if len(taken) == 0 {
		return nil
	}
	return &Transaction{takenAt: r.q.o.Now(), Deliveries: taken}
}
