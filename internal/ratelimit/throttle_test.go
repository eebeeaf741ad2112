// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// clock is a clock that tests move.
type clock struct{ now time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }
func (c *clock) Now() time.Time          { return c.now }
func (c *clock) forward(d time.Duration) { c.now = c.now.Add(d) }

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestNetwork(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7":             "192.0.2.7/32",
		"::ffff:192.0.2.7":      "192.0.2.7/32",
		"2001:db8:1:2:3:4:5:6":  "2001:db8:1:2::/64",
		"fe80::1%eth0":          "fe80::/64",
		"::1":                   "::/64",
		"2001:db8:1:2:ffff::99": "2001:db8:1:2::/64",
	} {
		if got := Network(ip(in)).String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"192.0.2.7":           "[192.0.2.7/32 192.0.2.0/24]",
		"::ffff:192.0.2.7":    "[192.0.2.7/32 192.0.2.0/24]",
		"2001:db8:1:2:3::4":   "[2001:db8:1:2::/64 2001:db8:1::/48]",
		"2001:db8:1:ffff::99": "[2001:db8:1:ffff::/64 2001:db8:1::/48]",
	} {
		if got := fmt.Sprint(Networks(ip(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if Network(netip.Addr{}) != (netip.Prefix{}) {
		t.Error("no address must be one client")
	}
}

func TestLimiter(t *testing.T) {
	c := newClock()
	l := NewLimiter[string](10, time.Minute, 100)
	l.Now = c.Now
	allow := func(key string, n int, wantOK bool, wantWait time.Duration) {
		t.Helper()
		wait, ok := l.Allow(key, n)
		if ok != wantOK || wait < wantWait || wait > wantWait+2*time.Millisecond {
			t.Fatalf("Allow(%s, %d) = %v, %v, want %v, %v", key, n, wait, ok, wantWait, wantOK)
		}
	}
	allow("a", 10, true, 0)
	allow("a", 1, false, 6*time.Second)
	allow("b", 4, true, 0)
	c.forward(6 * time.Second)
	allow("a", 2, false, 6*time.Second)
	allow("a", 1, true, 0)
	c.forward(-time.Hour)
	allow("a", 1, false, 6*time.Second)
	c.forward(time.Hour)
	allow("a", 1, false, 6*time.Second)
	c.forward(time.Hour)
	allow("a", 10, true, 0)
	allow("a", 11, false, 0)
}

func TestLimiterIsBounded(t *testing.T) {
	c := newClock()
	l := NewLimiter[int](1, time.Hour, 3)
	l.Now = c.Now
	for key := range 10 {
		l.Allow(key, 1)
		l.Allow(0, 1)
	}
	if l.buckets.Len() != 3 {
		t.Errorf("%d keys kept", l.buckets.Len())
	}
	if _, ok := l.Allow(0, 1); ok {
		t.Error("a key in use was forgotten")
	}
	if _, ok := l.Allow(1, 1); !ok {
		t.Error("the longest unused key was kept")
	}
}

func TestConns(t *testing.T) {
	c := &ConnLimiter{Total: 4, PerNetwork: 2, Exempt: netip.Addr.IsLoopback}
	acquire := func(from string, want bool) func() {
		t.Helper()
		release, ok := c.Acquire(ip(from))
		if ok != want {
			t.Fatalf("%s: %v, want %v", from, ok, want)
		}
		return release
	}
	first := acquire("2001:db8::1", true)
	acquire("2001:db8::2", true)
	acquire("2001:db8::3", false)
	acquire("2001:db8:0:1::3", true)
	first()
	first()
	if c.Count() != 2 {
		t.Fatalf("%d open, want 2", c.Count())
	}
	acquire("2001:db8::3", true)
	last := acquire("192.0.2.1", true)
	acquire("192.0.2.2", false)
	last()
	c.Total = 10
	for range 5 {
		defer acquire("::ffff:127.0.0.1", true)()
	}
	if _, there := c.counts[Network(ip("192.0.2.1"))]; there {
		t.Error("a network without connections is still held")
	}
}

// A client with a /48 has 65,536 networks, but can't use all connections.
func TestConnsOfASite(t *testing.T) {
	c := &ConnLimiter{Total: 20, PerNetwork: 2}
	var all []func()
	for i := range 20 {
		if release, ok := c.Acquire(ip(fmt.Sprintf("2001:db8:1:%x::1", i))); ok {
			all = append(all, release)
		}
	}
	if len(all) != 2*siteFactor {
		t.Errorf("a site has %d connections", len(all))
	}
	for i := range 5 { // neighboring IPv4 addresses count separately
		if _, ok := c.Acquire(ip(fmt.Sprintf("192.0.2.%d", i))); !ok {
			t.Error("refused beside a site")
		}
	}
	all[0]()
	if _, ok := c.Acquire(ip("2001:db8:1::99")); !ok {
		t.Error("refused though there is a place")
	}
	for _, release := range all {
		release()
	}
	if c.Count() != 6 || len(c.counts) != 5+2 {
		t.Errorf("%d open of %d networks", c.Count(), len(c.counts))
	}
}

func TestManyAtOnce(t *testing.T) {
	conns := &ConnLimiter{Total: 5, PerNetwork: 3}
	l := NewLimiter[netip.Prefix](3, time.Second, 10)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				from := netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 20)})
				if release, ok := conns.Acquire(from); ok {
					release()
				}
				l.Allow(Network(from), 1)
			}
		})
	}
	wg.Wait()
	if conns.Count() != 0 || len(conns.counts) != 0 {
		t.Errorf("%d connections left", conns.Count())
	}
}
