// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"net/netip"
	"time"
)

// ClientLimiter limits unauthenticated clients of the MX server, per network. It is created by
// NewClientLimiter; nil limits nothing.
type ClientLimiter struct {
	Exempt     func(netip.Addr) bool // clients without limits; may be nil
	TarpitBase time.Duration         // first delay of TarpitDelay; the longest is 40 times that; set by NewClientLimiter

	messages, unknownRecipients *Limiter[netip.Prefix]
}

// maxTracked is the maximum of networks that a limit remembers.
const maxTracked = 100_000

// NewClientLimiter returns a limiter with hourly limits per network: of messages, and of recipients
// that don't exist; 0 for no limit. exempt reports clients without limits; it may be nil.
func NewClientLimiter(messages, unknown int, exempt func(netip.Addr) bool) *ClientLimiter {
	s := &ClientLimiter{Exempt: exempt, TarpitBase: 250 * time.Millisecond}
	if messages > 0 {
		s.messages = NewLimiter[netip.Prefix](messages, time.Hour, maxTracked)
	}
	if unknown > 0 {
		s.unknownRecipients = NewLimiter[netip.Prefix](unknown, time.Hour, maxTracked)
	}
	return s
}

// AllowMessage counts a message, and reports whether it is within the limit.
func (s *ClientLimiter) AllowMessage(ip netip.Addr) bool {
	return s.exempt(ip) || s.messages == nil || allowNetwork(s.messages, ip)
}

// AllowUnknownRecipient counts a recipient that does not exist, and reports whether it is
// within the limit.
func (s *ClientLimiter) AllowUnknownRecipient(ip netip.Addr) bool {
	return s.exempt(ip) || s.unknownRecipients == nil || allowNetwork(s.unknownRecipients, ip)
}

// TarpitDelay returns the delay of the reply to a session's nth recipient that does not exist: none
// for the first few, as anybody may have an old address book, then increasing, at most 10 s.
func (s *ClientLimiter) TarpitDelay(ip netip.Addr, n int) time.Duration {
	const patience = 3
	if s.exempt(ip) || n <= patience {
		return 0
	}
	return min(s.TarpitBase<<min(n-patience-1, 10), 40*s.TarpitBase)
}

func (s *ClientLimiter) exempt(ip netip.Addr) bool {
	return s == nil || s.Exempt != nil && s.Exempt(ip.Unmap())
}

func allowNetwork(l *Limiter[netip.Prefix], ip netip.Addr) bool {
	_, ok := l.Allow(Network(ip), 1)
	return ok
}
