// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"testing"
	"time"
)

// Signing rests while accepting is busy, never otherwise, and not for ever.
func TestPace(t *testing.T) {
	const took = time.Millisecond
	at := time.Unix(1_800_000_000, 0)
	now := func() time.Time { return at }
	accept := func(p *pace, times int, each, between time.Duration) {
		for range times {
			done := p.accepting(now)
			at = at.Add(each)
			done()
			at = at.Add(between)
		}
	}
	var p pace
	if d := p.rest(at, took); d != 0 {
		t.Errorf("nothing was ever accepted, and signing rests %v", d)
	}
	accept(&p, 1000, time.Millisecond, 5*time.Millisecond)
	if d := p.rest(at, took); d != 0 {
		t.Errorf("now and then something is accepted, and signing rests %v", d)
	}
	accept(&p, 1000, time.Millisecond, 100*time.Microsecond)
	busy := p.rest(at, took)
	if busy != paceRest*took {
		t.Errorf("accepting never pauses, and signing rests %v, not %v", busy, paceRest*took)
	}
	at = at.Add(10 * paceWindow)
	if d := p.rest(at, took); d != 0 {
		t.Errorf("the burst is over, and signing rests %v", d)
	}

	// A load that does not end: what signing rests in an hour is what comes
	// back in that time, and no more.
	var sum time.Duration
	for end := at.Add(time.Hour); at.Before(end); {
		accept(&p, 10, 10*time.Millisecond, 0)
		for range 50 {
			sum += p.rest(at, took)
		}
	}
	if most := paceBurst + time.Hour/4 + time.Second; sum > most || sum < most/2 {
		t.Errorf("in an hour of load signing rests %v, which is to be near %v", sum, most)
	}
}

// Several accepts at once count once.
func TestPaceTogether(t *testing.T) {
	var p pace
	at := time.Unix(1_800_000_000, 0)
	now := func() time.Time { return at }
	a, b := p.accepting(now), p.accepting(now)
	at = at.Add(10 * time.Millisecond)
	a()
	b()
	at = at.Add(190 * time.Millisecond)
	if d := p.rest(at, time.Millisecond); d != 0 || p.share > 0.06 {
		t.Errorf("a twentieth of the time was busy: share %v, rest %v", p.share, d)
	}
}

// All processors may sign while nothing is accepted, and only some while
// something is.
func TestTurns(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	o := &Outbox{Signing: make(chan struct{}, 1), Spare: make(chan struct{}, 1), Now: func() time.Time { return at }}
	over, end := context.WithCancel(t.Context())
	end()
	for i := range 2 {
		if _, err := o.turn(t.Context()); err != nil {
			t.Fatalf("turn %d of two: %v", i+1, err)
		}
	}
	if _, err := o.turn(over); err == nil {
		t.Error("three sign where two may")
	}
	<-o.Spare
	defer o.pace.accepting(o.Now)()
	at = at.Add(2 * paceWindow)
	if _, err := o.turn(over); err == nil {
		t.Error("two sign while accepting is busy")
	}
	<-o.Signing
	done, err := o.turn(t.Context())
	if err != nil {
		t.Fatal("none signs while accepting is busy:", err)
	}
	done()
}
