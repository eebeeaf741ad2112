// SPDX-License-Identifier: Apache-2.0

package dns

// Patient makes a resolver repeat queries late.
func Patient(r *Resolver) {
	for _, s := range r.upstreams {
		s.timing.srtt = maxTimeout
	}
	for _, s := range r.zones {
		s.timing.srtt = maxTimeout
	}
}

// Waiting returns how many callers wait for shared answers.
func Waiting(r *Resolver) int {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	n := 0
	for _, l := range r.flights.flights {
		n += l.waiting
	}
	return n
}

// Open returns how many queries are open.
func Open(r *Resolver) (n int) {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	for _, p := range r.flights.domainSlots {
		n += len(p.slots)
	}
	return n
}
