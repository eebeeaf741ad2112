// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"net/netip"
	"time"
)

// Strangers limits what networks that nobody knows may do at the MX door. It is
// made by NewStrangers; nil limits nothing.
type Strangers struct {
	Friend func(netip.Addr) bool // whom nothing applies to; may be nil
	Slow   time.Duration         // the first wait of Tarpit, of which the longest is 40; set by NewStrangers

	messages, unknown *Limiter[netip.Prefix]
}

// maxTallies is how many networks a limit remembers.
const maxTallies = 100_000

// NewStrangers returns limits per network and hour: of messages, and of
// recipients that don't exist; 0 for no limit.
func NewStrangers(messages, unknown int) *Strangers {
	s := &Strangers{Slow: 250 * time.Millisecond}
	if messages > 0 {
		s.messages = NewLimiter[netip.Prefix](messages, time.Hour, maxTallies)
	}
	if unknown > 0 {
		s.unknown = NewLimiter[netip.Prefix](unknown, time.Hour, maxTallies)
	}
	return s
}

// Message counts a message, and reports whether it is within the limit.
func (s *Strangers) Message(ip netip.Addr) bool {
	return s.free(ip) || s.messages == nil || allowed(s.messages, ip)
}

// Unknown counts a recipient that does not exist, and reports whether it is
// within the limit.
func (s *Strangers) Unknown(ip netip.Addr) bool {
	return s.free(ip) || s.unknown == nil || allowed(s.unknown, ip)
}

// Tarpit is how long the answer waits that tells a session of the nth recipient
// that does not exist: nothing for the first few, as anybody has an old
// address book, then ever longer, 10 s at most.
func (s *Strangers) Tarpit(ip netip.Addr, n int) time.Duration {
	const patience = 3
	if s.free(ip) || n <= patience {
		return 0
	}
	return min(s.Slow<<min(n-patience-1, 10), 40*s.Slow)
}

func (s *Strangers) free(ip netip.Addr) bool {
	return s == nil || s.Friend != nil && s.Friend(ip.Unmap())
}

func allowed(l *Limiter[netip.Prefix], ip netip.Addr) bool {
	_, ok := l.Allow(Network(ip), 1)
	return ok
}
