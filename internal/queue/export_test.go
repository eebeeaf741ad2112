// SPDX-License-Identifier: Apache-2.0

package queue

// OnSettled tells f of each delivery that leaves the memory. Set it before use.
func (q *Queue) OnSettled(f func(d *Delivery)) { q.settled = f }
