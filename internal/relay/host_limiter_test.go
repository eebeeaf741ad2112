// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

func TestPaceOfConnections(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newHostLimiter(16, 0)
	for _, want := range []int{8, 4, 2, 1, 1} {
		p.recordRateLimitReply(now, false, "slower")
		p.recordRateLimitReply(now.Add(complaintWindow/2), false, "slower") // the same event
		if p.maxConnections() != want || now.Before(p.pausedUntil) {
			t.Fatalf("%d connections, want %d; rest until %v", p.maxConnections(), want, p.pausedUntil)
		}
		now = now.Add(complaintWindow)
	}
	// From one connection up to the maximum, each step takes a round of successes.
	for n := 1; n < 16; n++ {
		for range n + 1 {
			p.recordSuccess(now)
		}
		if p.maxConnections() <= n {
			t.Fatalf("%d connections after the successes of %d", p.maxConnections(), n)
		}
	}
	for range 100 {
		p.recordSuccess(now)
	}
	if p.maxConnections() != 16 || !p.isDefault(now) {
		t.Errorf("%+v", p)
	}
	p.recordConnRefused(3, "too many")
	if p.maxConnections() != 3 {
		t.Errorf("%d connections", p.maxConnections())
	}
	p.recordConnRefused(0, "too many")
	if p.maxConnections() != 1 {
		t.Errorf("%d connections", p.maxConnections())
	}
}

func TestPaceRests(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newHostLimiter(10, 0)
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		p.recordRateLimitReply(now, true, "stop")
		if got := p.pausedUntil.Sub(now); got != want*time.Second || !p.isLimited(now) {
			t.Fatalf("%d: rest of %v", i, got)
		}
		p.recordRateLimitReply(now.Add(time.Millisecond), true, "stop") // another connection's
		p.recordSuccess(now.Add(time.Millisecond))                      // on a connection that was still open
		now = p.pausedUntil
	}
	p.recordSuccess(now)
	p.recordRateLimitReply(now.Add(time.Minute), true, "stop")
	if got := p.pausedUntil.Sub(now.Add(time.Minute)); got != minPause {
		t.Errorf("after a success: rest of %v", got)
	}
}

// After a complaint at some rate, a host gets half of that rate, and more with each success, until
// the limit is lifted.
func TestPaceOfMessages(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newHostLimiter(1, 0)
	for range 101 {
		if !p.nextSendTime(now).Equal(now) {
			t.Fatal("slow without a reason")
		}
		p.recordSend()
		p.recordSuccess(now)
		now = now.Add(100 * time.Millisecond)
	}
	p.recordRateLimitReply(now, false, "too fast")
	if p.rate != 5 {
		t.Fatalf("rate %v", p.rate)
	}
	sent := func(d time.Duration) (n int) {
		for end := now.Add(d); ; n++ {
			at := p.nextSendTime(now)
			if !at.Before(end) {
				now = end
				return n
			}
			p.recordSend()
		}
	}
	if n := sent(10 * time.Second); n < 50 || n > 55 {
		t.Errorf("%d messages in 10 s at 5 a second", n)
	}
	for range recoverySuccesses + 1 {
		p.recordSuccess(now)
	}
	if p.rate != 0 || p.complaintRate != 0 {
		t.Errorf("rate %v", p.rate)
	}
	// The operator's limit is the maximum.
	p = newHostLimiter(1, 2)
	if n := sent(10 * time.Second); n < 20 || n > 22 {
		t.Errorf("%d messages in 10 s at 2 a second", n)
	}
	p.recordSuccess(now)
	p.recordSuccess(now.Add(10 * time.Second))
	p.recordRateLimitReply(now.Add(20*time.Second), false, "too fast")
	if p.rate != minRate {
		t.Errorf("rate %v", p.rate)
	}
	for range 200 {
		p.recordSuccess(now.Add(20 * time.Second))
	}
	if p.rate != 2 {
		t.Errorf("rate %v", p.rate)
	}
}

// The rate at a complaint is that of the last seconds: pauses and earlier messages don't count.
func TestPaceOfTheRecentPast(t *testing.T) {
	for _, c := range []struct {
		name      string
		hours     time.Duration // idle, after one message
		slow      int           // number of messages after that, one a second
		messages  int           // number of messages after that, 100 a second
		late      time.Duration // pause before the complaint
		rate      float64
		successes int // successes until there is no limit
	}{
		{"one in the morning", 10, 0, 1000, 0, 50, recoverySuccesses},
		{"one a second ago", 0, 0, 1000, 0, 50, recoverySuccesses},
		{"a slow hour before", 0, 3600, 3000, 0, 50, recoverySuccesses},
		{"all of it slow", 0, 3600, 0, 0, 0.5, recoverySuccesses},
		{"too little to tell", 10, 0, 1, 0, 0, 0},
		{"a complaint out of nothing", 10, 0, 1000, time.Minute, 0, 0},
	} {
		now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
		p := newHostLimiter(100, 0)
		p.recordSuccess(now)
		now = now.Add(c.hours * time.Hour)
		for range c.slow {
			now = now.Add(time.Second)
			p.recordSuccess(now)
		}
		for range c.messages {
			now = now.Add(10 * time.Millisecond)
			p.recordSuccess(now)
		}
		now = now.Add(c.late)
		p.recordRateLimitReply(now, false, "too fast")
		if p.rate < c.rate*0.9 || p.rate > c.rate*1.1 {
			t.Errorf("%s: %v messages a second, not %v", c.name, p.rate, c.rate)
		}
		n := 0
		for ; p.rate > 0; n++ {
			p.recordSuccess(now)
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
		yes, all := classifyRateLimitReply(smtpclient.Reply{Code: c.code, Enhanced: c.enhanced, Lines: []string{c.text}})
		if yes != c.yes || all != c.all {
			t.Errorf("%+v: %v, %v", c, yes, all)
		}
	}
}
