// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// OnSettled tells f of each delivery that leaves the memory. Set it before use.
func (q *Queue) OnSettled(f func(d *Delivery)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onForget = f
}

// StateOf tells how a delivery left the memory.
func StateOf(d *Delivery) State { return d.state }

// ClaimAs is a claim for a destination that began under a tenure.
func (q *Queue) ClaimAs(tenure db.ID, destination string) {
	q.mu.Lock()
	d, now := q.dest(destination), q.o.Now()
	f := &pendingClaim{d: d, lease: tenure, slots: 10}
	d.claiming = true
	q.claims++
	q.reserveSlots(d, f.slots)
	q.work.Add(1)
	q.mu.Unlock()
	q.claim(f, now)
}

// Overruling is of how many messages the deliveries are being ended by a verb.
func (q *Queue) Overruling() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.overriding)
}

// Senders is of how many accounts the memory knows.
func (q *Queue) Senders() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.accounts)
}

// Ready is how many deliveries wait in the memory for a courier.
func (q *Queue) Ready() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.dests {
		n += len(d.ready)
	}
	return n
}

// Begin is what Session begins with; Look is what it does again and again.
func (q *Queue) Begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started = true
}

// Look is one look of Session.
func (q *Queue) Look(ctx context.Context) error { return q.poll(ctx) }

// Filling begins a claim that finds nothing, and returns what ends it.
func (q *Queue) Filling() (end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.dest("filling.test")
	d.claiming = true
	q.claims++
	return func() { q.applyClaim(&pendingClaim{d: d}, nil, nil) }
}

// Fills is how many claims are under way.
func (q *Queue) Fills() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.claims
}

// TakeSlots takes all slots for outcomes, as if so many hung, and returns what
// frees them.
func (q *Queue) TakeSlots() (free func()) {
	for range cap(q.writeSlots) {
		q.writeSlots <- struct{}{}
	}
	return func() {
		for range cap(q.writeSlots) {
			<-q.writeSlots
		}
	}
}

// GiveUp gives up outcomes, as at the end of a drain, and Background runs a write.
func (q *Queue) GiveUp() { q.cancelWrites() }

// Background runs a write.
func (q *Queue) Background(f func()) { q.startWrite(f) }

// Ended is how many ended tenures the memory knows. It is for who calls Look.
func (q *Queue) Ended() int { return len(q.expiredLeases) }
