// SPDX-License-Identifier: Apache-2.0

package dns

// Waiting tells how many callers wait for answers that they share.
func Waiting(r *Resolver) int {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	n := 0
	for _, l := range r.flights.m {
		n += l.waiting
	}
	return n
}
