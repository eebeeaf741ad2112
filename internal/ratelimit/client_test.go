// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"net/netip"
	"testing"
	"time"
)

func TestClients(t *testing.T) {
	now := time.Unix(0, 0)
	clock := func() time.Time { return now }
	friend := netip.MustParseAddr("127.0.0.1")
	s := NewClientLimiter(2, 3, nil)
	s.messages.Now, s.unknownRecipients.Now = clock, clock
	s.Exempt = func(ip netip.Addr) bool { return ip == friend }
	a, b := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2") // one network
	if !s.AllowMessage(a) || !s.AllowMessage(b) || s.AllowMessage(a) {
		t.Error("messages are not counted by network")
	}
	if !s.AllowUnknownRecipient(a) || !s.AllowUnknownRecipient(b) || !s.AllowUnknownRecipient(a) || s.AllowUnknownRecipient(b) || !s.AllowUnknownRecipient(netip.MustParseAddr("192.0.2.1")) {
		t.Error("unknown recipients are not counted by network")
	}
	now = now.Add(30 * time.Minute)
	if !s.AllowMessage(a) || s.AllowMessage(a) || !s.AllowUnknownRecipient(a) || s.AllowUnknownRecipient(a) {
		t.Error("half an hour later it is not half of them")
	}
	for range 10 {
		if !s.AllowMessage(friend) || !s.AllowUnknownRecipient(friend) || s.TarpitDelay(friend, 100) != 0 {
			t.Fatal("a friend is limited")
		}
	}
	var before time.Duration
	for n, want := range map[int]time.Duration{0: 0, 3: 0, 4: 250 * time.Millisecond, 5: 500 * time.Millisecond, 10: 10 * time.Second, 1_000_000: 10 * time.Second} {
		if got := s.TarpitDelay(a, n); got != want {
			t.Errorf("the %dth waits %s, want %s", n, got, want)
		}
	}
	for n := range 100 {
		d := s.TarpitDelay(a, n)
		if d < before {
			t.Errorf("the %dth waits %s, less than the one before", n, d)
		}
		before = d
	}
	var none *ClientLimiter
	if !none.AllowMessage(a) || !none.AllowUnknownRecipient(a) || none.TarpitDelay(a, 50) != 0 || !NewClientLimiter(0, 0, nil).AllowMessage(a) || !NewClientLimiter(0, 0, nil).AllowUnknownRecipient(a) {
		t.Error("no limits limit")
	}
}
