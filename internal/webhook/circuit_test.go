// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"
)

// A working webhook gets more and more concurrent attempts, a failing one a single attempt at
// intervals. A single failure causes no pause.
func TestCircuit(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := circuitBreaker{limit: 1}
	for _, want := range []int{2, 4, 8, 10, 10} {
		if c.recordSuccess(); c.limit != want {
			t.Fatalf("limit %d, want %d", c.limit, want)
		}
	}
	for i := range failureThreshold - 1 {
		c.recordFailure(0, 0, now, 0)
		if c.level != 0 || !c.pausedUntil.IsZero() || !c.failingSince.Equal(now) {
			t.Fatalf("after %d failures: %+v", i+1, c)
		}
	}
	for range maxConcurrent { // all running attempts fail, and count as one failure
		c.recordFailure(0, 0, now, 0)
	}
	if c.level != 1 || c.limit != 1 || c.pausedUntil.Sub(now) < probeDelays[0] || c.pausedUntil.Sub(now) > probeDelays[0]*11/10 {
		t.Fatalf("%+v", c)
	}
	for i := range 2 * len(probeDelays) {
		level := c.level
		now = c.pausedUntil
		c.recordFailure(level, 0, now, 0)
		want := probeDelays[min(i+1, len(probeDelays)-1)]
		if c.level != level+1 || c.limit != 1 || c.pausedUntil.Sub(now) < want || c.pausedUntil.Sub(now) > want*11/10 {
			t.Fatalf("rest %d: %v, want %v", i, c.pausedUntil.Sub(now), want)
		}
	}
	c.recordFailure(c.level, 0, now, time.Hour)
	if c.pausedUntil.Sub(now) != time.Hour {
		t.Errorf("Retry-After: rests %v", c.pausedUntil.Sub(now))
	}
	if c.recordSuccess(); c.level != 0 || c.limit != 2 || !c.pausedUntil.IsZero() || !c.failingSince.IsZero() || c.failures != 0 {
		t.Errorf("after a success: %+v", c)
	}
}

// A single delivery never waits longer than its schedule says.
func TestCircuitKeepsSchedule(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := circuitBreaker{limit: 1}
	for n := 1; n < len(retryDelays); n++ {
		c.recordFailure(c.level, 0, now, 0)
		next, _ := nextAttempt(n, now, 0)
		if c.pausedUntil.After(next) {
			t.Errorf("after attempt %d it rests until %v after the next is due", n, c.pausedUntil.Sub(next))
		}
		now = next
	}
}
