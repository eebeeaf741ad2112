// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"time"
)

// destination is the state of a destination domain.
type destination[D Delivery] struct {
	name       string
	ready      []D       // leased, not in an attempt, in order
	progressAt time.Time // when a session last took a delivery from ready, or ready became non-empty
	slotsUsed  int       // slots in use: reserved, ready, in an attempt, or being written
	sessions   int
	agent      Agent                    // agent of the last session
	waitingFor map[*accountLoad[D]]bool // accounts on whose waiting list it is

	hasBacklog   bool // rows wait for a slot
	arrivals     int  // number of calls of markWaiting
	refillQueued bool // is in Dispatcher.refillQueue
	claiming     bool // a claim is running

	reachable    bool      // a host answered, so several sessions may run
	backoffUntil time.Time // no attempts and claims until then
	failures     int       // number of connection failures in a row
	pausedUntil  time.Time // no new session until then
	throttled    bool      // its hosts took no mail the last time
}

const (
	// probeWindow is the maximum of leased deliveries for a destination that could not be reached,
	// or took no mail, the last time.
	probeWindow = 5
	// StallTimeout is how long a destination without progress may keep slots that others wait for.
	StallTimeout = time.Minute
	// forgetUnreachableAfter is how long an unreachable destination without mail is remembered.
	forgetUnreachableAfter = time.Hour
)

func (x *Dispatcher[D]) destination(name string) *destination[D] {
	d := x.destinations[name]
	if d == nil {
		d = &destination[D]{name: name}
		x.destinations[name] = d
	}
	return d
}

// removeIdleDestination removes a destination that has no state to remember.
func (x *Dispatcher[D]) removeIdleDestination(d *destination[D]) {
	if d.slotsUsed == 0 && d.sessions == 0 && !d.hasBacklog && !d.refillQueued && !d.claiming && len(d.waitingFor) == 0 && d.failures == 0 && !d.throttled {
		delete(x.destinations, d.name)
	}
}

// window returns the maximum of leased deliveries for d, at most most.
func (d *destination[D]) window(most int) int {
	if d.failures > 0 || d.throttled {
		return min(most, probeWindow)
	}
	return most
}

// reserveSlots takes n slots for d; a negative n returns them.
func (x *Dispatcher[D]) reserveSlots(d *destination[D], n int) {
	d.slotsUsed += n
	x.slotsUsed += n
}

// Preempt removes the ready deliveries of stalled destinations when waiting rows of others find no
// slot. Hosts that take minutes per message could otherwise occupy all slots for hours. It takes
// from the destinations that are stalled longest, until claims can continue. The caller releases
// the deliveries, for StallTimeout, and forgets them.
func (x *Dispatcher[D]) Preempt() (taken []D) {
	over := x.slotsUsed - x.preempting - x.claimLowWater()
	if _, able := x.o.Lease(); !able || !x.full || over <= 0 {
		return nil
	}
	now := x.o.Now()
	var stalled []*destination[D]
	for _, d := range x.destinations {
		if len(d.ready) > 0 && now.Sub(d.progressAt) >= StallTimeout {
			stalled = append(stalled, d)
		}
	}
	slices.SortFunc(stalled, func(a, b *destination[D]) int { return a.progressAt.Compare(b.progressAt) })
	for _, d := range stalled {
		if len(taken) >= over {
			break
		}
		taken = append(taken, d.ready...)
		d.ready = nil
	}
	for _, d := range taken {
		d.entry().preempted = true
	}
	x.preempting += len(taken)
	return taken
}

// MarkReachable records that a session's destination can be reached.
func (x *Dispatcher[D]) MarkReachable(s *Session[D]) {
	d := s.destination
	if d.reachable && d.failures == 0 && !d.throttled {
		return
	}
	d.reachable, d.failures, d.throttled = true, 0, false
	x.startSessions(d)
	x.refill(d)
}

// BackOff stops attempts to a session's unreachable destination until a time. The caller releases
// and forgets the deliveries that were ready.
func (x *Dispatcher[D]) BackOff(s *Session[D]) (ready []D, until time.Time) {
	d, now := s.destination, x.o.Now()
	if !now.Before(d.backoffUntil) { // otherwise several sessions report the same failure
		d.failures++
		d.backoffUntil = now.Add(backoffDelay(d.failures))
		x.o.WakeAt(d.backoffUntil)
	}
	ready = d.ready
	d.ready, d.reachable = nil, false
	return ready, d.backoffUntil
}

// PauseDestination starts no session for a session's destination before until: its hosts take no
// mail. It returns the time until which the destination is paused. When its last session ends
// before that, EndSession returns the deliveries that are ready.
func (x *Dispatcher[D]) PauseDestination(s *Session[D], until time.Time) (paused time.Time) {
	s.taken = true // it ends for a reason
	d := s.destination
	d.throttled, d.reachable = true, false
	if until.After(d.pausedUntil) {
		d.pausedUntil = until
		x.o.WakeAt(until)
	}
	return d.pausedUntil
}

// RetryDestination ends the backoff and the pause of a destination, for a retry on demand. Its rows
// are claimed again. It reports whether rows were known to wait.
func (x *Dispatcher[D]) RetryDestination(name string) (waited bool) {
	d := x.destination(name)
	d.backoffUntil, d.pausedUntil = time.Time{}, time.Time{}
	waited = d.hasBacklog
	x.markWaiting(d)
	x.refill(d)
	x.startSessions(d)
	x.removeIdleDestination(d)
	return waited
}

// RetryAllDestinations is RetryDestination for all known destinations.
func (x *Dispatcher[D]) RetryAllDestinations() {
	for name := range x.destinations {
		x.RetryDestination(name)
	}
}

// Poll starts what became possible as time passed, and asks to be called again when more will.
func (x *Dispatcher[D]) Poll() {
	now := x.o.Now()
	x.backlogged = 0
	for _, d := range x.destinations {
		if d.hasBacklog && !now.Before(d.backoffUntil) {
			x.backlogged++
		}
	}
	for _, d := range x.destinations {
		switch {
		case now.Before(d.backoffUntil):
			x.o.WakeAt(d.backoffUntil)
		case (d.failures > 0 || d.throttled) && d.slotsUsed == 0 && !d.hasBacklog &&
			(now.Sub(d.backoffUntil) > forgetUnreachableAfter || len(x.destinations) > 2*x.o.Capacity): // any number may be dead
			d.failures, d.throttled = 0, false
			x.removeIdleDestination(d)
		default:
			if now.Before(d.pausedUntil) {
				x.o.WakeAt(d.pausedUntil)
			}
			x.startSessions(d)
			x.refill(d)
		}
	}
}
