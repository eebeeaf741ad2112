// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// destination is what the memory knows of a domain that mail goes to. Queue.mu
// guards it.
type destination struct {
	name       string
	ready      []*Delivery // in hand, not with a courier, in order
	progressAt time.Time   // when a courier last took of it, or it began to be something
	slotsUsed  int         // places taken: reserved, ready, carried, or being written
	sessions   int
	agent      Agent                 // of the last run
	waitingFor map[*accountLoad]bool // in whose lines it waits for a run

	hasBacklog   bool // rows wait that found no place
	arrivals     int  // how often rows came to wait
	refillQueued bool // waits for its rows to be claimed
	claiming     bool // rows are being claimed

	reachable    bool      // it answered, and may have more runs than one
	backoffUntil time.Time // put off until then
	failures     int       // how often in a row it could not be reached
	pausedUntil  time.Time // no run begins until then
	throttled    bool      // its hosts took nothing the last time
}

// probeWindow is how many deliveries are taken in hand for a destination that could
// not be reached the last time, or took nothing.
const probeWindow = 5

// stallTimeout is how long a destination that nothing is taken from may keep places
// that others wait for, and then goes without.
const stallTimeout = time.Minute

// minShare is how many deliveries that waited in rows are taken in hand for a
// destination however many others have such: fewer would cost a statement each.
const minShare = 50

func (q *Queue) dest(name string) *destination {
	d := q.dests[name]
	if d == nil {
		d = &destination{name: name}
		q.dests[name] = d
	}
	return d
}

// removeIdleDestination forgets a destination of which there is nothing to know.
func (q *Queue) removeIdleDestination(d *destination) {
	if d.slotsUsed == 0 && d.sessions == 0 && !d.hasBacklog && !d.refillQueued && !d.claiming && len(d.waitingFor) == 0 && d.failures == 0 && !d.throttled {
		delete(q.dests, d.name)
	}
}

// usableLease reports whether deliveries may be taken in hand at all.
func (q *Queue) usableLease() (db.ID, bool) {
	tenure, ok := q.o.Node.Lease()
	return tenure, ok && !q.draining && q.unwritten == 0
}

// freeSlots is how many more deliveries can be taken in hand for d as they come.
func (q *Queue) freeSlots(d *destination) int {
	return min(d.window(q.o.Window)-d.slotsUsed, q.o.Capacity-q.slotsUsed)
}

// window is how many deliveries may be in hand for d, of so many at most.
func (d *destination) window(most int) int {
	if d.failures > 0 || d.throttled {
		return min(most, probeWindow)
	}
	return most
}

// fairShare is how many deliveries that waited in rows may be in hand for d: the
// places for them are shared by the destinations that have such, so that none
// holds up the others. It is also what makes a long backlog cheap: what was
// accepted together lies together, and is claimed and settled together.
func (q *Queue) fairShare(d *destination) int {
	places := q.claimCapacity()
	return min(d.window(q.o.Window), max(places/max(1, q.backlogged), minShare), places)
}

// claimCapacity is how many places there are for what waited in rows; the others
// are for new mail.
func (q *Queue) claimCapacity() int { return max(1, q.o.Capacity*3/4) }

// claimLowWater is how many places may be taken for claiming to go on once it found
// none: a quarter is free, so that many destinations claim in one commit. What
// they claim was accepted together and lies on the same pages.
func (q *Queue) claimLowWater() int { return q.claimCapacity() * 3 / 4 }

// markWaiting notes that rows wait for d.
func (q *Queue) markWaiting(d *destination) {
	d.arrivals++ // a claim under way may have looked before
	if !d.hasBacklog {
		d.hasBacklog = true
		q.backlogged++
	}
}

// clearWaiting notes that no more rows wait for d.
func (q *Queue) clearWaiting(d *destination) {
	if d.hasBacklog {
		d.hasBacklog = false
		q.backlogged--
	}
}

// reserveSlots takes places.
func (q *Queue) reserveSlots(d *destination, n int) {
	d.slotsUsed += n
	q.slotsUsed += n
}

// releaseSlots gives a place back and sees who can use it.
func (q *Queue) releaseSlots(d *destination, n int) {
	q.reserveSlots(d, -n)
	q.refill(d)
	q.removeIdleDestination(d)
}

// enqueue hands a delivery to its destination.
func (q *Queue) enqueue(d *Delivery) {
	if len(d.dest.ready) == 0 {
		d.dest.progressAt = q.o.Now()
	}
	d.dest.ready = append(d.dest.ready, d)
}

// preempt takes back what is ready for destinations that stand still, if what
// waits in rows for others finds no place: hosts that take a message in minutes
// could have all the places for hours. It takes from those that stand longest,
// until startClaims goes on. q.mu is held.
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

// forget drops a delivery from the memory, with its place.
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

// startSessions begins runs for a destination, as many as it can use.
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

// hasReady reports whether a run would find something to take.
func (q *Queue) hasReady(d *destination) bool {
	return slices.ContainsFunc(d.ready, func(x *Delivery) bool { return q.overriding[x.Message] == 0 })
}

// sessionsWanted is how many runs a destination can use now.
func (d *destination) sessionsWanted() int {
	if d.agent == nil || !d.reachable {
		return 1
	}
	return min(max(1, d.agent.Concurrency(len(d.ready))), d.sessions+len(d.ready))
}

// markReachable notes that a destination can be reached.
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

// resumeAll begins again after a pause, in which nothing stood still by itself.
func (q *Queue) resumeAll() {
	now := q.o.Now()
	for _, d := range q.dests {
		d.progressAt = now
		q.startSessions(d)
		q.refill(d)
	}
}

// backOff stops a destination for a while, since it could not be reached, and
// gives back what is ready. It returns that.
func (q *Queue) backOff(d *destination, now time.Time) []*Delivery {
	if !now.Before(d.backoffUntil) { // else several runs met the same trouble
		d.failures++
		d.backoffUntil = now.Add(backoffDelay(d.failures))
		q.wakeAt(d.backoffUntil)
	}
	ready := d.ready
	d.ready, d.reachable = nil, false
	return ready
}
