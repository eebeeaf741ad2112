// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"time"
)

const (
	// MaxRecipients is the maximum of deliveries in one transaction. A host must accept at least
	// 100 (RFC 5321 §4.5.3.1.8).
	MaxRecipients = 100
	// maxTransactions is how many transactions a session takes while other destinations wait for a
	// session.
	maxTransactions = 100
	// maxWaitingPerSlot is the maximum of sessions without a slot, as a multiple of MaxSessions.
	maxWaitingPerSlot = 4
)

// Agent tells how many sessions a destination can use.
type Agent interface {
	// Concurrency returns how many sessions should run at once when so many deliveries wait.
	Concurrency(waiting int) int
}

// Session is a session at work for a destination.
type Session[D Delivery] struct {
	destination  *destination[D]
	account      *accountLoad[D]
	taken        bool // Take was called
	transactions int
}

// Destination returns the session's destination.
func (s *Session[D]) Destination() string { return s.destination.name }

// SetAgent records the agent of a session, which decides how many sessions follow.
func (x *Dispatcher[D]) SetAgent(s *Session[D], a Agent) { s.destination.agent = a }

// startSessions starts as many sessions for a destination as it can use.
func (x *Dispatcher[D]) startSessions(d *destination[D]) {
	now := x.o.Now()
	if _, ok := x.o.Lease(); !ok || !x.started || now.Before(d.backoffUntil) || now.Before(d.pausedUntil) {
		return
	}
	for x.hasReady(d) && d.sessions < d.sessionsWanted() {
		a := x.eligibleAccount(d)
		if a == nil {
			x.waitForSession(d)
			return
		}
		d.sessions++
		x.sessions++
		a.sessions++
		x.o.StartSession(&Session[D]{destination: d, account: a})
	}
}

// hasReady reports whether a session would find a delivery to take.
func (x *Dispatcher[D]) hasReady(d *destination[D]) bool {
	for _, r := range d.ready {
		if x.blocked[r.entry().Message] == 0 {
			return true
		}
	}
	return false
}

// sessionsWanted returns how many sessions a destination can use now.
func (d *destination[D]) sessionsWanted() int {
	if d.agent == nil || !d.reachable {
		return 1
	}
	return min(max(1, d.agent.Concurrency(len(d.ready))), d.sessions+len(d.ready))
}

// Take returns the deliveries of a session's next transaction, which all have the current lease. It
// returns none if the session must end: no delivery is ready, or another destination needs the
// session. Every delivery ends with Requeue or Forget.
func (x *Dispatcher[D]) Take(s *Session[D]) (list []D) {
	s.taken = true
	d, now := s.destination, x.o.Now()
	lease, ok := x.o.Lease()
	if !ok || now.Before(d.backoffUntil) || s.transactions >= maxTransactions && len(x.waitingAccounts) > 0 {
		return nil
	}
	for i := 0; i < len(d.ready) && len(list) < MaxRecipients; {
		next := d.ready[i]
		e := next.entry()
		if x.blocked[e.Message] > 0 {
			i++
			continue
		}
		if len(list) > 0 && !mayShareTransaction(list[0].entry(), e) {
			break
		}
		d.ready = removeAt(d.ready, i)
		if e.Lease != lease { // its row is being taken over
			x.Forget(next)
			continue
		}
		e.inAttempt = true
		x.inAttempt++
		list = append(list, next)
	}
	if len(list) == 0 {
		return nil
	}
	d.progressAt = now
	x.startSessions(d)
	return list
}

// CountTransaction counts a transaction of a session. After some, the session ends if other
// destinations wait.
func (s *Session[D]) CountTransaction() { s.transactions++ }

// mayShareTransaction reports whether two deliveries may share a transaction.
func mayShareTransaction(a, b *Entry) bool {
	return a.Message == b.Message && a.Shareable && b.Shareable
}

// ReleaseSlot gives up a session's slot before a wait that may take long, until ReturnSlot. It
// returns false if too many sessions wait that way, or too many slots are in use.
func (x *Dispatcher[D]) ReleaseSlot(s *Session[D]) bool {
	if x.waitingSessions >= maxWaitingPerSlot*x.o.MaxSessions || x.slotsUsed > x.o.Capacity/2 {
		return false
	}
	x.moveSlot(s, 1)
	x.startWaitingDestinations()
	return true
}

// ReturnSlot reverses ReleaseSlot.
func (x *Dispatcher[D]) ReturnSlot(s *Session[D]) { x.moveSlot(s, -1) }

func (x *Dispatcher[D]) moveSlot(s *Session[D], n int) {
	x.waitingSessions += n
	x.sessions -= n
	s.account.waitingSessions += n
	s.account.sessions -= n
}

// EndSession ends a session. It puts the destination into backoff if the session never called Take:
// otherwise the destination would get a session again at once, endlessly. It also does so if the
// destination is paused and no other session is at work. The caller then releases the deliveries
// that were ready until the returned time, and forgets them.
func (x *Dispatcher[D]) EndSession(s *Session[D]) (ready []D, until time.Time) {
	d := s.destination
	d.sessions--
	x.sessions--
	s.account.sessions--
	switch {
	case !s.taken:
		ready, until = x.BackOff(s)
	case d.sessions == 0 && x.o.Now().Before(d.pausedUntil):
		if d.pausedUntil.After(d.backoffUntil) {
			d.backoffUntil = d.pausedUntil
		}
		ready, until = d.ready, d.backoffUntil
		d.ready = nil
	}
	x.startWaitingDestinations() // first: otherwise a destination with a backlog would keep the slot
	x.startSessions(d)
	x.removeIdleDestination(d)
	x.removeIdleAccount(s.account)
	return ready, until
}
