// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"
)

// A webhook that works gets more and more attempts at the same time, one that
// fails a single one now and then; a single failure is no reason to rest.
func TestCircuit(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := circuit{limit: 1}
	for _, want := range []int{2, 4, 8, 10, 10} {
		if c.succeeded(); c.limit != want {
			t.Fatalf("limit %d, want %d", c.limit, want)
		}
	}
	for i := range patience - 1 {
		c.failed(0, now, 0)
		if c.level != 0 || !c.rest.IsZero() || !c.since.Equal(now) {
			t.Fatalf("after %d failures: %+v", i+1, c)
		}
	}
	for range maxFlying { // all that were under way fail, and count as one
		c.failed(0, now, 0)
	}
	if c.level != 1 || c.limit != 1 || c.rest.Sub(now) < pauses[0] || c.rest.Sub(now) > pauses[0]*11/10 {
		t.Fatalf("%+v", c)
	}
	for i := range 2 * len(pauses) {
		level := c.level
		now = c.rest
		c.failed(level, now, 0)
		want := pauses[min(i+1, len(pauses)-1)]
		if c.level != level+1 || c.limit != 1 || c.rest.Sub(now) < want || c.rest.Sub(now) > want*11/10 {
			t.Fatalf("rest %d: %v, want %v", i, c.rest.Sub(now), want)
		}
	}
	c.failed(c.level, now, time.Hour)
	if c.rest.Sub(now) != time.Hour {
		t.Errorf("Retry-After: rests %v", c.rest.Sub(now))
	}
	if c.succeeded(); c.level != 0 || c.limit != 2 || !c.rest.IsZero() || !c.since.IsZero() || c.failures != 0 {
		t.Errorf("after a success: %+v", c)
	}
}

// A single delivery is never kept waiting longer than its schedule says.
func TestCircuitKeepsSchedule(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := circuit{limit: 1}
	for n := 1; n < len(delays); n++ {
		c.failed(c.level, now, 0)
		next, _ := nextTry(n, now, 0)
		if c.rest.After(next) {
			t.Errorf("after attempt %d it rests until %v after the next is due", n, c.rest.Sub(next))
		}
		now = next
	}
}
