// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

func TestPaceOfConnections(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newPace(16, 0)
	for _, want := range []int{8, 4, 2, 1, 1} {
		p.complaint(now, false, "slower")
		p.complaint(now.Add(oneEvent/2), false, "slower") // the same event
		if p.connections() != want || now.Before(p.cool) {
			t.Fatalf("%d connections, want %d; rest until %v", p.connections(), want, p.cool)
		}
		now = now.Add(oneEvent)
	}
	// From one connection to the most, each takes a round of successes.
	for n := 1; n < 16; n++ {
		for range n + 1 {
			p.success(now)
		}
		if p.connections() <= n {
			t.Fatalf("%d connections after the successes of %d", p.connections(), n)
		}
	}
	for range 100 {
		p.success(now)
	}
	if p.connections() != 16 || !p.idle(now) {
		t.Errorf("%+v", p)
	}
	p.refused(3, "too many")
	if p.connections() != 3 {
		t.Errorf("%d connections", p.connections())
	}
	p.refused(0, "too many")
	if p.connections() != 1 {
		t.Errorf("%d connections", p.connections())
	}
}

func TestPaceRests(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newPace(10, 0)
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		p.complaint(now, true, "stop")
		if got := p.cool.Sub(now); got != want*time.Second || !p.slowed(now) {
			t.Fatalf("%d: rest of %v", i, got)
		}
		p.complaint(now.Add(time.Millisecond), true, "stop") // another connection's
		p.success(now.Add(time.Millisecond))                 // a straggler's
		now = p.cool
	}
	p.success(now)
	p.complaint(now.Add(time.Minute), true, "stop")
	if got := p.cool.Sub(now.Add(time.Minute)); got != coolFirst {
		t.Errorf("after a success: rest of %v", got)
	}
}

// A host that complains at so many messages a second gets half of that, and
// more with each success, until the limit goes.
func TestPaceOfMessages(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newPace(1, 0)
	for range 101 {
		if !p.when(now).Equal(now) {
			t.Fatal("slow without a reason")
		}
		p.goes()
		p.success(now)
		now = now.Add(100 * time.Millisecond)
	}
	p.complaint(now, false, "too fast")
	if p.rate != 5 {
		t.Fatalf("rate %v", p.rate)
	}
	sent := func(d time.Duration) (n int) {
		for end := now.Add(d); ; n++ {
			at := p.when(now)
			if !at.Before(end) {
				now = end
				return n
			}
			p.goes()
		}
	}
	if n := sent(10 * time.Second); n < 50 || n > 55 {
		t.Errorf("%d messages in 10 s at 5 a second", n)
	}
	for range recovery + 1 {
		p.success(now)
	}
	if p.rate != 0 || p.was != 0 {
		t.Errorf("rate %v", p.rate)
	}
	// The operator's limit is the most.
	p = newPace(1, 2)
	if n := sent(10 * time.Second); n < 20 || n > 22 {
		t.Errorf("%d messages in 10 s at 2 a second", n)
	}
	p.success(now)
	p.success(now.Add(10 * time.Second))
	p.complaint(now.Add(20*time.Second), false, "too fast")
	if p.rate != slowest {
		t.Errorf("rate %v", p.rate)
	}
	for range 200 {
		p.success(now.Add(20 * time.Second))
	}
	if p.rate != 2 {
		t.Errorf("rate %v", p.rate)
	}
}

// The rate at which a host complains is that of the last seconds: pauses, and what
// went before, don't count.
func TestPaceOfTheRecentPast(t *testing.T) {
	for _, c := range []struct {
		name      string
		hours     time.Duration // idle, after one message
		slow      int           // then so many, one in a second
		messages  int           // then so many at 100 a second
		late      time.Duration // before the complaint
		rate      float64
		successes int // until there is no limit
	}{
		{"one in the morning", 10, 0, 1000, 0, 50, recovery},
		{"one a second ago", 0, 0, 1000, 0, 50, recovery},
		{"a slow hour before", 0, 3600, 3000, 0, 50, recovery},
		{"all of it slow", 0, 3600, 0, 0, 0.5, recovery},
		{"too little to tell", 10, 0, 1, 0, 0, 0},
		{"a complaint out of nothing", 10, 0, 1000, time.Minute, 0, 0},
	} {
		now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
		p := newPace(100, 0)
		p.success(now)
		now = now.Add(c.hours * time.Hour)
		for range c.slow {
			now = now.Add(time.Second)
			p.success(now)
		}
		for range c.messages {
			now = now.Add(10 * time.Millisecond)
			p.success(now)
		}
		now = now.Add(c.late)
		p.complaint(now, false, "too fast")
		if p.rate < c.rate*0.9 || p.rate > c.rate*1.1 {
			t.Errorf("%s: %v messages a second, not %v", c.name, p.rate, c.rate)
		}
		n := 0
		for ; p.rate > 0; n++ {
			p.success(now)
		}
		if n < c.successes || n > c.successes+2 {
			t.Errorf("%s: no limit after %d successes, not %d", c.name, n, c.successes)
		}
	}
}

func TestComplaints(t *testing.T) {
	for _, c := range []struct {
		code           int
		enhanced, text string
		yes, all       bool
	}{
		{421, "", "closing", true, true},
		{421, "4.7.0", "too fast", true, true},
		{451, "4.3.2", "not now", true, true},
		{450, "4.7.1", "too many messages", true, false},
		{451, "4.7.1", "Greylisted, try again", false, false},
		{450, "4.2.1", "busy", false, false},
		{452, "4.2.2", "full", false, false},
		{550, "5.7.1", "no", false, false},
		{250, "2.0.0", "ok", false, false},
		{0, "4.4.2", "connection lost", false, false},
	} {
		yes, all := complains(smtpclient.Reply{Code: c.code, Enhanced: c.enhanced, Lines: []string{c.text}})
		if yes != c.yes || all != c.all {
			t.Errorf("%+v: %v, %v", c, yes, all)
		}
	}
}
