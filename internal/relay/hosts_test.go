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

func someHosts() (*hostTable, hostKey) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return newHostTable(func() time.Time { return now }, 10, 0, 16), hostKey{addr: netip.MustParseAddrPort("192.0.2.1:25")}
}

// full allows no more waiters.
func full() (func(), bool) { return nil, false }

func enter(t *testing.T, h *hostTable, a hostKey) *hostSlot {
	t.Helper()
	v, err := h.acquire(t.Context(), a, full)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// line lets n more sessions wait at an address, and returns their slots.
func line(h *hostTable, a hostKey, n int) <-chan *hostSlot {
	got := make(chan *hostSlot)
	waiting := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		if l := h.active[a.addr]; l != nil {
			return len(l.waiters)
		}
		return 0
	}
	for range n {
		before := waiting()
		go func() {
			v, _ := h.acquire(context.Background(), a, full)
			got <- v
		}()
		for waiting() == before {
			runtime.Gosched()
		}
	}
	return got
}

// A session that got its slot because another one was connected may connect, or fail, after that
// one has left.
func TestVisitOutlastsItsCompany(t *testing.T) {
	for _, talks := range []bool{true, false} {
		h, a := someHosts()
		first := enter(t, h, a)
		first.markConnected()
		second := enter(t, h, a)
		first.release(nil)
		if talks {
			second.markConnected()
		}
		if second.release(nil) || len(h.active) != 0 || len(h.failures) != 0 {
			t.Errorf("left behind: %v, %v", h.active, h.failures)
		}
	}
}

// Sessions that wait for the first one's attempt learn its result.
func TestFirstFindsOut(t *testing.T) {
	h, a := someHosts()
	first := enter(t, h, a)
	why := &smtpclient.DialError{}
	var work sync.WaitGroup
	for range 5 {
		work.Go(func() {
			if v, err := h.acquire(context.Background(), a, full); v != nil || !errors.Is(err, why) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
	first.release(why)
	work.Wait()
	if len(h.active) != 0 || !h.recentlyFailed(a) {
		t.Errorf("left behind: %v, %v", h.active, h.failures)
	}
}

// If a host refuses one connection while it serves another, it is only busy. The other sessions
// wait until that connection has ended, each in its turn.
func TestRefusedBesideAConversation(t *testing.T) {
	h, a := someHosts()
	first := enter(t, h, a)
	first.markConnected()
	other := enter(t, h, a)
	other.markConnected()
	if !enter(t, h, a).release(&smtpclient.DialError{}) || len(h.failures) != 0 {
		t.Error("no company")
	}
	if n := first.maxConnections(); n != 2 {
		t.Errorf("%d connections are allowed", n)
	}
	got := line(h, a, 2)
	first.release(nil)
	second := <-got
	second.markConnected()
	select {
	case <-got:
		t.Error("both were let in")
	default:
	}
	other.release(nil)
	third := <-got
	second.release(nil)
	third.release(nil)
	if len(h.active) != 0 {
		t.Errorf("left behind: %v", h.active)
	}
}

// The first session that waits for the last connection becomes the one that finds out if the host
// answers.
func TestFirstAmongThoseWhoWait(t *testing.T) {
	h, a := someHosts()
	h.maxConns = 1
	v := enter(t, h, a)
	v.markConnected()
	got := line(h, a, 3)
	v.release(nil)
	v = <-got
	if !v.probing {
		t.Error("not the first")
	}
	v.release(&smtpclient.DialError{})
	for range 2 {
		if v := <-got; v != nil {
			t.Error("let in to a dead host")
		}
	}
	if len(h.active) != 0 {
		t.Errorf("left behind: %v", h.active)
	}
}

// The number of waiters is limited.
func TestLineIsBounded(t *testing.T) {
	h, a := someHosts()
	h.maxConns = 1
	v := enter(t, h, a)
	v.markConnected()
	got := line(h, a, h.maxWaiters)
	h.limiter(a.addr).avgSlotTime = time.Second / 8
	var not *rateLimitError
	if _, err := h.acquire(t.Context(), a, full); !errors.As(err, &not) || not.retryAt.Sub(h.now()) != 2*time.Second {
		t.Errorf("got %v", err)
	}
	for range h.maxWaiters {
		v.release(nil)
		v = <-got
		v.markConnected()
	}
	v.release(nil)
	if len(h.active) != 0 {
		t.Errorf("left behind: %v", h.active)
	}
}

// A host that fails one domain's policy may satisfy another's.
func TestTermsApart(t *testing.T) {
	h, a := someHosts()
	strict := hostKey{a.addr, "strict"}
	enter(t, h, strict).release(&smtpclient.DialError{Outcome: smtpclient.Outcome{Stage: smtpclient.StageHandshake}})
	if !h.recentlyFailed(strict) || h.recentlyFailed(a) {
		t.Error("the failure counts for others, or not at all")
	}
	enter(t, h, a).release(nil)
	enter(t, h, a).release(&smtpclient.DialError{Outcome: smtpclient.Outcome{Stage: smtpclient.StageGreeting}})
	if _, err := h.acquire(t.Context(), hostKey{a.addr, "other"}, full); err == nil {
		t.Error("a dead host is dialled again")
	}
}

// If a host asks us to stop, all sessions leave it at once.
func TestComplaintEndsVisits(t *testing.T) {
	h, a := someHosts()
	v := enter(t, h, a)
	v.markConnected()
	if v.mustRelease() || !v.reserveSend() {
		t.Error("may not go")
	}
	h.maxConns = 1
	h.limiter(a.addr).connLimit = 1
	got := line(h, a, 3)
	v.recordReplies([]smtpclient.Outcome{{Reply: smtpclient.Reply{Code: 421}}})
	for range 3 {
		if v := <-got; v != nil {
			t.Error("let in")
		}
	}
	if !v.mustRelease() {
		t.Error("goes on")
	}
	v.release(nil)
	var not *rateLimitError
	if _, err := h.acquire(t.Context(), a, full); !errors.As(err, &not) || not.retryAt.Sub(h.now()) != minPause {
		t.Errorf("got %v", err)
	}
}

func TestEnterEndsWithItsContext(t *testing.T) {
	h, a := someHosts()
	enter(t, h, a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.acquire(ctx, a, full); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// However many hosts have been down, the limits of others are remembered.
func TestPacesOfTheDead(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := newHostTable(func() time.Time { return now }, 10, 0, 16)
	at := func(i int) hostKey {
		ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		return hostKey{addr: netip.AddrPortFrom(ip, 25)}
	}
	remembers := func(i int) {
		t.Helper()
		v := enter(t, h, at(i))
		v.markConnected()
		v.recordReplies([]smtpclient.Outcome{{Stage: smtpclient.StageRcpt, Reply: smtpclient.Reply{Code: 421, Lines: []string{"slow down"}}}})
		v.release(nil)
		var rests *rateLimitError
		if _, err := h.acquire(t.Context(), at(i), full); !errors.As(err, &rests) {
			t.Errorf("host %d asked us to slow down, and is talked to: %v", i, err)
		}
	}
	dead := &smtpclient.DialError{Outcome: smtpclient.Outcome{Class: smtpclient.NextHost, Stage: smtpclient.StageConnect}}
	for i := range 2 * maxRememberedHosts {
		enter(t, h, at(i)).release(dead)
		now = now.Add(10 * time.Millisecond)
	}
	remembers(2 * maxRememberedHosts)
	if n := len(h.limiters); n > 2*maxRememberedHosts {
		t.Errorf("%d paces are remembered", n)
	}
	now = now.Add(2 * limiterTTL)
	remembers(2*maxRememberedHosts + 1)
	if n := len(h.limiters); n > 10 {
		t.Errorf("%d paces are remembered hours later", n)
	}
}

// However many hosts are paused, old limiters are pruned once a second, and not for each message to
// a new host.
func TestPacesThatRest(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := newHostTable(func() time.Time { return now }, 10, 0, 16)
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 25)
	}
	for i := range 2 * maxRememberedHosts {
		p := newHostLimiter(h.maxConns, h.maxRate)
		p.recordRateLimitReply(now, true, "slow down")
		h.limiters[at(i)] = p
	}
	h.limiter(at(2 * maxRememberedHosts))
	for _, p := range h.limiters {
		p.pausedUntil = now // shows whether limiters were pruned
	}
	if h.limiter(at(2*maxRememberedHosts + 1)); h.limiters[at(2*maxRememberedHosts+1)] != nil {
		t.Error("what was looked through a moment ago is looked through again")
	}
	now = now.Add(complaintWindow)
	h.limiter(at(2*maxRememberedHosts + 2))
	if n := len(h.limiters); n > maxRememberedHosts*3/2+1 || h.limiters[at(2*maxRememberedHosts+2)] == nil {
		t.Errorf("%d paces are left a second later", n)
	}
}
