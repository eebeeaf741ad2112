// SPDX-License-Identifier: Apache-2.0

package queue

import "github.com/mailstead/mailstead/internal/db"

// OnSettled tells f of each delivery that leaves the memory. Set it before use.
func (q *Queue) OnSettled(f func(d *Delivery)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled = f
}

// StateOf tells how a delivery left the memory.
func StateOf(d *Delivery) State { return d.state }

// ClaimAs is a claim for a destination that began under a tenure.
func (q *Queue) ClaimAs(tenure db.ID, destination string) {
	q.mu.Lock()
	d, now := q.dest(destination), q.o.Now()
	f := &filling{d: d, tenure: tenure, room: 10}
	d.filling = true
	q.fills++
	q.hold(d, f.room)
	q.work.Add(1)
	q.mu.Unlock()
	q.claim(f, now)
}

// Overruling is of how many messages the deliveries are being ended by a verb.
func (q *Queue) Overruling() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.overruling)
}
