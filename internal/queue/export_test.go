// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

// OnSettled calls f with each delivery that leaves the memory. Set it before use.
func (q *Queue) OnSettled(f func(d *Delivery)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onForget = f
}

// StateOf returns the state in which a delivery left the memory.
func StateOf(d *Delivery) State { return d.state }

// ClaimAs claims rows for a destination under a given lease.
func (q *Queue) ClaimAs(leaseID db.ID, destination string) {
	q.mu.Lock()
	c := &claim{Destination: destination, Slots: 10}
	q.dispatch.BeginClaim(c)
	q.work.Add(1)
	q.mu.Unlock()
	q.claim(&pendingClaim{claim: c, lease: leaseID}, q.o.Now())
}

// Dispatched returns the dispatcher's counts.
func (q *Queue) Dispatched() dispatch.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dispatch.Stats()
}

// Overruling returns the number of messages that override is changing.
func (q *Queue) Overruling() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dispatch.BlockedCount()
}

// Begin starts the queue as Run does; Look polls once.
func (q *Queue) Begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch.Start()
}

// Look polls once.
func (q *Queue) Look(ctx context.Context) error { return q.poll(ctx) }

// Filling starts a claim that finds no rows, and returns a function that ends it.
func (q *Queue) Filling() (end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &claim{Destination: "filling.test"}
	q.dispatch.BeginClaim(c)
	return func() { q.applyClaim(&pendingClaim{claim: c}, nil, nil) }
}

// TakeSlots takes all write slots, as if that many writes hung, and returns a function that frees
// them.
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

// GiveUp cancels the writes of outcomes, as at the end of a drain.
func (q *Queue) GiveUp() { q.cancelWrites() }

// Background runs a write.
func (q *Queue) Background(f func()) { q.startWrite(f) }
