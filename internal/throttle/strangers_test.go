// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"net/netip"
	"testing"
	"time"
)

func TestStrangers(t *testing.T) {
	now := time.Unix(0, 0)
	clock := func() time.Time { return now }
	friend := netip.MustParseAddr("127.0.0.1")
	s := NewStrangers(2, 3)
	s.messages.Now, s.unknown.Now = clock, clock
	s.Friend = func(ip netip.Addr) bool { return ip == friend }
	a, b := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2") // one network
	if !s.Message(a) || !s.Message(b) || s.Message(a) {
		t.Error("messages are not counted by network")
	}
	if !s.Unknown(a) || !s.Unknown(b) || !s.Unknown(a) || s.Unknown(b) || !s.Unknown(netip.MustParseAddr("192.0.2.1")) {
		t.Error("unknown recipients are not counted by network")
	}
	now = now.Add(30 * time.Minute)
	if !s.Message(a) || s.Message(a) || !s.Unknown(a) || s.Unknown(a) {
		t.Error("half an hour later it is not half of them")
	}
	for range 10 {
		if !s.Message(friend) || !s.Unknown(friend) || s.Tarpit(friend, 100) != 0 {
			t.Fatal("a friend is limited")
		}
	}
	var before time.Duration
	for n, want := range map[int]time.Duration{0: 0, 3: 0, 4: 250 * time.Millisecond, 5: 500 * time.Millisecond, 10: 10 * time.Second, 1_000_000: 10 * time.Second} {
		if got := s.Tarpit(a, n); got != want {
			t.Errorf("the %dth waits %s, want %s", n, got, want)
		}
	}
	for n := range 100 {
		d := s.Tarpit(a, n)
		if d < before {
			t.Errorf("the %dth waits %s, less than the one before", n, d)
		}
		before = d
	}
	var none *Strangers
	if !none.Message(a) || !none.Unknown(a) || none.Tarpit(a, 50) != 0 || !NewStrangers(0, 0).Message(a) || !NewStrangers(0, 0).Unknown(a) {
		t.Error("no limits limit")
	}
}
