// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"testing"
	"time"
)

// Background work only rests while the load is high, and not forever.
func TestPace(t *testing.T) {
	const took, times = time.Millisecond, 6
	at := time.Unix(1_800_000_000, 0)
	now := func() time.Time { return at }
	accept := func(p *LoadGauge, n int, each, between time.Duration) {
		for range n {
			done := p.Begin(now)
			at = at.Add(each)
			done()
			at = at.Add(between)
		}
	}
	var p LoadGauge
	if d := p.RestTime(at, took, times); d != 0 {
		t.Errorf("nothing was ever accepted, and the work rests %v", d)
	}
	accept(&p, 1000, time.Millisecond, 5*time.Millisecond)
	if d := p.RestTime(at, took, times); d != 0 {
		t.Errorf("now and then something is accepted, and the work rests %v", d)
	}
	accept(&p, 1000, time.Millisecond, 100*time.Microsecond)
	busy := p.RestTime(at, took, times)
	if busy != times*took {
		t.Errorf("accepting never pauses, and the work rests %v, not %v", busy, times*took)
	}
	at = at.Add(10 * loadWindow)
	if d := p.RestTime(at, took, times); d != 0 {
		t.Errorf("the burst is over, and the work rests %v", d)
	}

	// Under permanent load the work rests in an hour as long as is added back
	// in that time, and no longer.
	var sum time.Duration
	for end := at.Add(time.Hour); at.Before(end); {
		accept(&p, 10, 10*time.Millisecond, 0)
		for range 50 {
			sum += p.RestTime(at, took, times)
		}
	}
	if most := maxRest + time.Hour/4 + time.Second; sum > most || sum < most/2 {
		t.Errorf("in an hour of load the work rests %v, which is to be near %v", sum, most)
	}
}

// Concurrent foreground requests count once.
func TestPaceTogether(t *testing.T) {
	var p LoadGauge
	at := time.Unix(1_800_000_000, 0)
	now := func() time.Time { return at }
	a, b := p.Begin(now), p.Begin(now)
	at = at.Add(10 * time.Millisecond)
	a()
	b()
	at = at.Add(190 * time.Millisecond)
	if d := p.RestTime(at, time.Millisecond, 6); d != 0 || p.load > 0.06 {
		t.Errorf("a twentieth of the time was busy: share %v, rest %v", p.load, d)
	}
}
