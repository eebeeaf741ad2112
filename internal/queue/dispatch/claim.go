// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"time"
)

const (
	// maxClaims is the maximum of concurrent claims.
	maxClaims = 64
	// minShare is the minimum share of slots for a destination's waiting rows, however many
	// destinations have waiting rows. A smaller share would cost a statement per delivery.
	minShare = 50
)

// Claim is a running claim of a destination's waiting rows.
type Claim[D Delivery] struct {
	Destination string
	Slots       int // reserved slots: the maximum of rows to lease; 0 with Held
	// Held reports whether all mail to the destination is held, so that the rows must be held
	// instead.
	Held bool

	destination *destination[D]
	arrivals    int
}

// fairShare returns the maximum of slots for waiting rows of d. The destinations with waiting rows
// share these slots, so that none delays the others. Large claims also make a long backlog cheap:
// deliveries that were accepted together lie together in the table, and are claimed and settled
// together.
func (x *Dispatcher[D]) fairShare(d *destination[D]) int {
	capacity := x.claimCapacity()
	return min(d.window(x.o.Window), max(capacity/max(1, x.backlogged), minShare), capacity)
}

// claimCapacity returns the number of slots for waiting rows; the others are for new mail.
func (x *Dispatcher[D]) claimCapacity() int { return max(1, x.o.Capacity*3/4) }

// claimLowWater returns how many slots may be in use when claims resume after they found no free
// slot. A quarter is then free, so that many destinations claim in one commit. Their rows were
// accepted together and lie on the same pages.
func (x *Dispatcher[D]) claimLowWater() int { return x.claimCapacity() * 3 / 4 }

func (x *Dispatcher[D]) markWaiting(d *destination[D]) {
	d.arrivals++ // a running claim may have missed the new rows
	if !d.hasBacklog {
		d.hasBacklog = true
		x.backlogged++
	}
}

// MarkWaiting records that rows wait for a destination. They are claimed later, when a slot is
// returned or at the next Poll.
func (x *Dispatcher[D]) MarkWaiting(name string) { x.markWaiting(x.destination(name)) }

// AddBacklog records that rows wait for destinations, and claims them if slots are free. It reports
// whether no rows were known to wait for one of them.
func (x *Dispatcher[D]) AddBacklog(names ...string) (news bool) {
	for _, name := range names {
		d := x.destination(name)
		news = news || !d.hasBacklog
		x.markWaiting(d)
	}
	for _, name := range names { // the number of destinations that share the slots is now known
		x.refill(x.destination(name))
	}
	return news
}

// refill schedules a claim of the destination's waiting rows, once half of its share is free.
// Destinations that queued earlier come first.
func (x *Dispatcher[D]) refill(d *destination[D]) {
	if !d.refillQueued && x.needsRefill(d, x.o.Now()) {
		d.refillQueued = true
		x.refillQueue = append(x.refillQueue, d)
	}
	x.startClaims()
}

// needsRefill reports whether the destination's rows should be claimed now.
func (x *Dispatcher[D]) needsRefill(d *destination[D], now time.Time) bool {
	return d.hasBacklog && !d.claiming && !now.Before(d.backoffUntil) && d.slotsUsed <= x.fairShare(d)/2
}

// startClaims claims rows for the destinations in refillQueue, in turn, while slots are free.
func (x *Dispatcher[D]) startClaims() {
	if _, able := x.o.Lease(); !able || !x.started || x.claimsPaused || x.full && x.slotsUsed > x.claimLowWater() {
		return
	}
	x.full = false
	now := x.o.Now()
	for len(x.refillQueue) > 0 && x.claims < maxClaims {
		d := x.refillQueue[0]
		free, share := x.claimCapacity()-x.slotsUsed, x.fairShare(d)
		needed, held := x.needsRefill(d, now), x.o.IsHeld(d.name)
		if needed && !held && free < (share+1)/2 {
			x.full = true
			return
		}
		x.refillQueue = slices.Delete(x.refillQueue, 0, 1)
		d.refillQueued = false
		if !needed {
			x.removeIdleDestination(d)
			continue
		}
		c := &Claim[D]{Destination: d.name, Held: held}
		if !held {
			c.Slots = min(share-d.slotsUsed, free)
		}
		x.BeginClaim(c)
		x.o.StartClaim(c)
	}
}

// BeginClaim reserves the slots of a claim. The dispatcher calls it for those that it starts.
func (x *Dispatcher[D]) BeginClaim(c *Claim[D]) {
	d := x.destination(c.Destination)
	c.destination, c.arrivals = d, d.arrivals
	d.claiming = true
	x.claims++
	x.reserveSlots(d, c.Slots)
}

// EndClaim ends a claim, after the caller has admitted the deliveries that it leased. ok is false
// if it failed. all reports whether no due row was left.
func (x *Dispatcher[D]) EndClaim(c *Claim[D], all, ok bool) {
	d := c.destination
	d.claiming = false
	if x.claims--; x.claims == 0 && x.claimsPaused {
		x.o.WakeAt(x.o.Now()) // the caller of PauseClaims waits for it
	}
	if ok && all && d.arrivals == c.arrivals && d.hasBacklog {
		d.hasBacklog = false
		x.backlogged--
	}
	x.reserveSlots(d, -c.Slots)
	if ok {
		x.refill(d)
	}
	x.removeIdleDestination(d)
}

// PauseClaims keeps claims from starting. It returns the number of running ones, and calls
// Options.WakeAt when the last of them has ended. ResumeClaims continues.
func (x *Dispatcher[D]) PauseClaims() (running int) {
	x.claimsPaused = true
	return x.claims
}

// ResumeClaims ends PauseClaims.
func (x *Dispatcher[D]) ResumeClaims() { x.claimsPaused = false }
