// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

func someHosts() (*hosts, terms) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return newHosts(func() time.Time { return now }, 10, 0, 16), terms{addr: netip.MustParseAddrPort("192.0.2.1:25")}
}

// full lets no more runs wait.
func full() (func(), bool) { return nil, false }

func enter(t *testing.T, h *hosts, a terms) *visit {
	t.Helper()
	v, err := h.enter(t.Context(), a, full)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// line lets so many more runs wait at an address, and returns what they got.
func line(h *hosts, a terms, n int) <-chan *visit {
	got := make(chan *visit)
	waiting := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		if l := h.live[a.addr]; l != nil {
			return len(l.waiting)
		}
		return 0
	}
	for range n {
		before := waiting()
		go func() {
			v, _ := h.enter(context.Background(), a, full)
			got <- v
		}()
		for waiting() == before {
			runtime.Gosched()
		}
	}
	return got
}

// A run that was let in because another talked may begin to talk, or fail,
// after that one has left.
func TestVisitOutlastsItsCompany(t *testing.T) {
	for _, talks := range []bool{true, false} {
		h, a := someHosts()
		first := enter(t, h, a)
		first.talk()
		second := enter(t, h, a)
		first.leave(nil)
		if talks {
			second.talk()
		}
		if second.leave(nil) || len(h.live) != 0 || len(h.failed) != 0 {
			t.Errorf("left behind: %v, %v", h.live, h.failed)
		}
	}
}

// Those who wait for the first one's try learn what it found.
func TestFirstFindsOut(t *testing.T) {
	h, a := someHosts()
	first := enter(t, h, a)
	why := &smtpclient.DialError{}
	var work sync.WaitGroup
	for range 5 {
		work.Go(func() {
			if v, err := h.enter(context.Background(), a, full); v != nil || !errors.Is(err, why) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
	first.leave(why)
	work.Wait()
	if len(h.live) != 0 || !h.avoided(a) {
		t.Errorf("left behind: %v, %v", h.live, h.failed)
	}
}

// A refusal beside a conversation says nothing against the host but that it
// has enough: the others wait until one has ended, each in its turn.
func TestRefusedBesideAConversation(t *testing.T) {
	h, a := someHosts()
	first := enter(t, h, a)
	first.talk()
	other := enter(t, h, a)
	other.talk()
	if !enter(t, h, a).leave(&smtpclient.DialError{}) || len(h.failed) != 0 {
		t.Error("no company")
	}
	if n := first.connections(); n != 2 {
		t.Errorf("%d connections are allowed", n)
	}
	got := line(h, a, 2)
	first.leave(nil)
	second := <-got
	second.talk()
	select {
	case <-got:
		t.Error("both were let in")
	default:
	}
	other.leave(nil)
	third := <-got
	second.leave(nil)
	third.leave(nil)
	if len(h.live) != 0 {
		t.Errorf("left behind: %v", h.live)
	}
}

// Whoever waits for the last conversation becomes the one that finds out.
func TestFirstAmongThoseWhoWait(t *testing.T) {
	h, a := someHosts()
	h.most = 1
	v := enter(t, h, a)
	v.talk()
	got := line(h, a, 3)
	v.leave(nil)
	v = <-got
	if !v.first {
		t.Error("not the first")
	}
	v.leave(&smtpclient.DialError{})
	for range 2 {
		if v := <-got; v != nil {
			t.Error("let in to a dead host")
		}
	}
	if len(h.live) != 0 {
		t.Errorf("left behind: %v", h.live)
	}
}

// So many wait and no more.
func TestLineIsBounded(t *testing.T) {
	h, a := someHosts()
	h.most = 1
	v := enter(t, h, a)
	v.talk()
	got := line(h, a, h.waiters)
	h.pace(a.addr).stay = time.Second / 8
	var not *slowed
	if _, err := h.enter(t.Context(), a, full); !errors.As(err, &not) || not.until.Sub(h.now()) != 2*time.Second {
		t.Errorf("got %v", err)
	}
	for range h.waiters {
		v.leave(nil)
		v = <-got
		v.talk()
	}
	v.leave(nil)
	if len(h.live) != 0 {
		t.Errorf("left behind: %v", h.live)
	}
}

// What a host does not do for one domain's policy it may do for another's.
func TestTermsApart(t *testing.T) {
	h, a := someHosts()
	strict := terms{a.addr, "strict"}
	enter(t, h, strict).leave(&smtpclient.DialError{Outcome: smtpclient.Outcome{Stage: smtpclient.StageHandshake}})
	if !h.avoided(strict) || h.avoided(a) {
		t.Error("the failure counts for others, or not at all")
	}
	enter(t, h, a).leave(nil)
	enter(t, h, a).leave(&smtpclient.DialError{Outcome: smtpclient.Outcome{Stage: smtpclient.StageGreeting}})
	if _, err := h.enter(t.Context(), terms{a.addr, "other"}, full); err == nil {
		t.Error("a dead host is dialled again")
	}
}

// A host that asks us to stop is left alone by all, at once.
func TestComplaintEndsVisits(t *testing.T) {
	h, a := someHosts()
	v := enter(t, h, a)
	v.talk()
	if v.over() || !v.goes() {
		t.Error("may not go")
	}
	h.most = 1
	h.pace(a.addr).limit = 1
	got := line(h, a, 3)
	v.heard([]smtpclient.Outcome{{Reply: smtpclient.Reply{Code: 421}}})
	for range 3 {
		if v := <-got; v != nil {
			t.Error("let in")
		}
	}
	if !v.over() {
		t.Error("goes on")
	}
	v.leave(nil)
	var not *slowed
	if _, err := h.enter(t.Context(), a, full); !errors.As(err, &not) || not.until.Sub(h.now()) != coolFirst {
		t.Errorf("got %v", err)
	}
}

func TestEnterEndsWithItsContext(t *testing.T) {
	h, a := someHosts()
	enter(t, h, a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.enter(ctx, a, full); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// However many hosts were down at some time, how fast mail may go to others is
// remembered.
func TestPacesOfTheDead(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := newHosts(func() time.Time { return now }, 10, 0, 16)
	at := func(i int) terms {
		ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		return terms{addr: netip.AddrPortFrom(ip, 25)}
	}
	remembers := func(i int) {
		t.Helper()
		v := enter(t, h, at(i))
		v.talk()
		v.heard([]smtpclient.Outcome{{Stage: smtpclient.StageRcpt, Reply: smtpclient.Reply{Code: 421, Lines: []string{"slow down"}}}})
		v.leave(nil)
		var rests *slowed
		if _, err := h.enter(t.Context(), at(i), full); !errors.As(err, &rests) {
			t.Errorf("host %d asked us to slow down, and is talked to: %v", i, err)
		}
	}
	dead := &smtpclient.DialError{Outcome: smtpclient.Outcome{Class: smtpclient.NextHost, Stage: smtpclient.StageConnect}}
	for i := range 2 * maxKnown {
		enter(t, h, at(i)).leave(dead)
		now = now.Add(10 * time.Millisecond)
	}
	remembers(2 * maxKnown)
	if n := len(h.paces); n > 2*maxKnown {
		t.Errorf("%d paces are remembered", n)
	}
	now = now.Add(2 * paceLife)
	remembers(2*maxKnown + 1)
	if n := len(h.paces); n > 10 {
		t.Errorf("%d paces are remembered hours later", n)
	}
}

// However many hosts rest, they are looked through for some to forget once a
// second, and not for each message to a new one.
func TestPacesThatRest(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := newHosts(func() time.Time { return now }, 10, 0, 16)
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 25)
	}
	for i := range 2 * maxKnown {
		p := newPace(h.most, h.top)
		p.complaint(now, true, "slow down")
		h.paces[at(i)] = p
	}
	h.pace(at(2 * maxKnown))
	for _, p := range h.paces {
		p.cool = now // to be seen if they are looked at
	}
	if h.pace(at(2*maxKnown + 1)); h.paces[at(2*maxKnown+1)] != nil {
		t.Error("what was looked through a moment ago is looked through again")
	}
	now = now.Add(oneEvent)
	h.pace(at(2*maxKnown + 2))
	if n := len(h.paces); n > maxKnown*3/2+1 || h.paces[at(2*maxKnown+2)] == nil {
		t.Errorf("%d paces are left a second later", n)
	}
}
