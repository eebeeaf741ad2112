// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// destination is the in-memory state of a destination domain. Queue.mu guards it.
type destination struct {
	name       string
	ready      []*Delivery // leased, not in an attempt, in order
	progressAt time.Time   // when a session last took a delivery from ready, or ready became non-empty
	slotsUsed  int         // slots in use: reserved, ready, in an attempt, or being written
	sessions   int
	agent      Agent                 // agent of the last session
	waitingFor map[*accountLoad]bool // accounts on whose waiting list it is

	hasBacklog   bool // rows wait for a slot
	arrivals     int  // number of calls of markWaiting
	refillQueued bool // is in Queue.refillQueue
	claiming     bool // a claim is running

	reachable    bool      // a host answered, so several sessions may run
	backoffUntil time.Time // no attempts and claims until then
	failures     int       // number of connection failures in a row
	pausedUntil  time.Time // no new session until then
	throttled    bool      // its hosts took no mail the last time
}

// probeWindow is the maximum of leased deliveries for a destination that could not be reached, or
// took no mail, the last time.
const probeWindow = 5

// stallTimeout is how long a destination without progress may keep slots that others wait for. It
// then also stays without leased deliveries for that long.
const stallTimeout = time.Minute

// minShare is the minimum share of slots for a destination's waiting rows, however many
// destinations have waiting rows. A smaller share would cost a statement per delivery.
const minShare = 50

func (q *Queue) dest(name string) *destination {
	d := q.dests[name]
	if d == nil {
		d = &destination{name: name}
		q.dests[name] = d
	}
	return d
}

// removeIdleDestination removes a destination that has no state to remember.
func (q *Queue) removeIdleDestination(d *destination) {
	if d.slotsUsed == 0 && d.sessions == 0 && !d.hasBacklog && !d.refillQueued && !d.claiming && len(d.waitingFor) == 0 && d.failures == 0 && !d.throttled {
		delete(q.dests, d.name)
	}
}

// usableLease returns the node's lease, and whether the queue may lease deliveries under it.
func (q *Queue) usableLease() (db.ID, bool) {
	lease, ok := q.o.Node.Lease()
	return lease, ok && !q.draining && q.unwritten == 0
}

// freeSlots returns how many more new deliveries can be leased for d.
func (q *Queue) freeSlots(d *destination) int {
	return min(d.window(q.o.Window)-d.slotsUsed, q.o.Capacity-q.slotsUsed)
}

// window returns the maximum of leased deliveries for d, at most most.
func (d *destination) window(most int) int {
	if d.failures > 0 || d.throttled {
		return min(most, probeWindow)
	}
	return most
}

// fairShare returns the maximum of slots for waiting rows of d. The destinations with waiting rows
// share these slots, so that none delays the others. Large claims also make a long backlog cheap:
// deliveries that were accepted together lie together in the table, and are claimed and settled
// together.
func (q *Queue) fairShare(d *destination) int {
	places := q.claimCapacity()
	return min(d.window(q.o.Window), max(places/max(1, q.backlogged), minShare), places)
}

// claimCapacity returns the number of slots for waiting rows; the others are for new mail.
func (q *Queue) claimCapacity() int { return max(1, q.o.Capacity*3/4) }

// claimLowWater returns how many slots may be in use when claims resume after they found no free
// slot. A quarter is then free, so that many destinations claim in one commit. Their rows were
// accepted together and lie on the same pages.
func (q *Queue) claimLowWater() int { return q.claimCapacity() * 3 / 4 }

// markWaiting records that rows wait for d.
func (q *Queue) markWaiting(d *destination) {
	d.arrivals++ // a running claim may have missed the new rows
	if !d.hasBacklog {
		d.hasBacklog = true
		q.backlogged++
	}
}

// clearWaiting records that no more rows wait for d.
func (q *Queue) clearWaiting(d *destination) {
	if d.hasBacklog {
		d.hasBacklog = false
		q.backlogged--
	}
}

// reserveSlots takes n slots for d; a negative n returns them.
func (q *Queue) reserveSlots(d *destination, n int) {
	d.slotsUsed += n
	q.slotsUsed += n
}

// releaseSlots returns n slots of d and starts claims that can use them.
func (q *Queue) releaseSlots(d *destination, n int) {
	q.reserveSlots(d, -n)
	q.refill(d)
	q.removeIdleDestination(d)
}

// enqueue appends a delivery to its destination's ready list.
func (q *Queue) enqueue(d *Delivery) {
	if len(d.dest.ready) == 0 {
		d.dest.progressAt = q.o.Now()
	}
	d.dest.ready = append(d.dest.ready, d)
}

// preempt removes the ready deliveries of stalled destinations when waiting rows of others find no
// slot. Hosts that take minutes per message could otherwise occupy all slots for hours. It takes
// from the destinations that are stalled longest, until startClaims can continue. q.mu is held.
func (q *Queue) preempt(now time.Time) (back []*Delivery) {
	over := q.slotsUsed - q.preempting - q.claimLowWater()
	if _, able := q.usableLease(); !able || !q.full || over <= 0 {
		return nil
	}
	var still []*destination
	for _, d := range q.dests {
		if len(d.ready) > 0 && now.Sub(d.progressAt) >= stallTimeout {
			still = append(still, d)
		}
	}
	slices.SortFunc(still, func(a, b *destination) int { return a.progressAt.Compare(b.progressAt) })
	for _, d := range still {
		if len(back) >= over {
			break
		}
		back = append(back, d.ready...)
		d.ready = nil
	}
	for _, d := range back {
		d.preempted = true
	}
	q.preempting += len(back)
	return back
}

// forget removes a delivery from memory and returns its slot.
func (q *Queue) forget(d *Delivery) {
	if d.inFlight {
		d.inFlight = false
		q.inFlight--
	}
	if d.preempted {
		d.preempted = false
		q.preempting--
	}
	if at := d.key(); q.leased[at] == d {
		delete(q.leased, at)
	}
	q.messages.forget(d.Message)
	s := q.account(d.Account)
	s.slotsUsed--
	q.removeIdleAccount(s)
	q.releaseSlots(d.dest, 1)
	if q.onForget != nil {
		q.onForget(d)
	}
}

// startSessions starts as many sessions for a destination as it can use.
func (q *Queue) startSessions(d *destination) {
	if _, ok := q.usableLease(); !ok || !q.started || q.o.Now().Before(d.backoffUntil) || q.o.Now().Before(d.pausedUntil) {
		return
	}
	for q.hasReady(d) && d.sessions < d.sessionsWanted() {
		s := q.eligibleAccount(d)
		if s == nil {
			q.waitForSession(d)
			return
		}
		d.sessions++
		q.sessions++
		s.sessions++
		q.work.Add(1)
		go q.runSession(d, s)
	}
}

// hasReady reports whether a session would find a delivery to take.
func (q *Queue) hasReady(d *destination) bool {
	return slices.ContainsFunc(d.ready, func(x *Delivery) bool { return q.overriding[x.Message] == 0 })
}

// sessionsWanted returns how many sessions a destination can use now.
func (d *destination) sessionsWanted() int {
	if d.agent == nil || !d.reachable {
		return 1
	}
	return min(max(1, d.agent.Concurrency(len(d.ready))), d.sessions+len(d.ready))
}

// markReachable records that a destination can be reached.
func (q *Queue) markReachable(d *destination) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.reachable && d.failures == 0 && !d.throttled {
		return
	}
	d.reachable, d.failures, d.throttled = true, 0, false
	q.startSessions(d)
	q.refill(d)
}

// resumeAll restarts sessions and claims after a pause of the whole queue. It resets the stall
// timers, because no destination could make progress during the pause.
func (q *Queue) resumeAll() {
	now := q.o.Now()
	for _, d := range q.dests {
		d.progressAt = now
		q.startSessions(d)
		q.refill(d)
	}
}

// backOff stops attempts to an unreachable destination for a while. It returns the ready deliveries
// for the caller to release.
func (q *Queue) backOff(d *destination, now time.Time) []*Delivery {
	if !now.Before(d.backoffUntil) { // otherwise several sessions report the same failure
		d.failures++
		d.backoffUntil = now.Add(backoffDelay(d.failures))
		q.wakeAt(d.backoffUntil)
	}
	ready := d.ready
	d.ready, d.reachable = nil, false
	return ready
}
