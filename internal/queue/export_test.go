// SPDX-License-Identifier: Apache-2.0

package queue

// OnSettled tells f of each delivery that leaves the memory. Set it before use.
func (q *Queue) OnSettled(f func(d *Delivery)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled = f
}

// StateOf tells how a delivery left the memory.
func StateOf(d *Delivery) State { return d.state }
