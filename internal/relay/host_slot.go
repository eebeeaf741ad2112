// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

// limiter returns the limiter of an address, and stores a new one. h.mu must be held.
func (h *hostTable) limiter(a netip.AddrPort) *hostLimiter {
	if p := h.limiters[a]; p != nil {
		return p
	}
	p := newHostLimiter(h.maxConns, h.maxRate)
	if len(h.limiters) >= maxRememberedHosts {
		h.pruneLimiters(h.now())
	}
	if len(h.limiters) < 2*maxRememberedHosts { // else all others are paused: this one is used once and not stored
		h.limiters[a] = p
	}
	return p
}

// pruneLimiters drops limiters to make space for others. A dead host never recovers its limits, and
// the number of those only grows. h.mu must be held.
func (h *hostTable) pruneLimiters(now time.Time) {
	if now.Sub(h.limitersPrunedAt) < complaintWindow { // not for every message
		return
	}
	h.limitersPrunedAt = now
	for k, old := range h.limiters {
		if h.active[k] == nil && (old.isDefault(now) || old.isExpired(now)) {
			delete(h.limiters, k)
		}
	}
	for k, old := range h.limiters {
		if len(h.limiters) <= maxRememberedHosts*3/2 {
			return
		}
		if h.active[k] == nil && !now.Before(old.pausedUntil) {
			delete(h.limiters, k)
		}
	}
}

// maxConnections returns how many connections the address allows now.
func (v *hostSlot) maxConnections() int {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	return v.table.limiter(v.key.addr).maxConnections()
}

// mustRelease reports whether the session must give up its slot: the host is paused, there are too
// many sessions, or it has sent its share while others wait.
func (v *hostSlot) mustRelease() bool {
	h := v.table
	h.mu.Lock()
	defer h.mu.Unlock()
	l, p := h.active[v.key.addr], h.limiter(v.key.addr)
	switch {
	case h.now().Before(p.pausedUntil), v.evicted:
		return true
	case l.slots-l.evicted > p.maxConnections():
		v.evicted = true
		l.evicted++
		return true
	}
	return len(l.waiters) > 0 && v.sent >= maxMessagesPerTurn
}

// reserveSend reserves the send time of one message. It returns false if that time is yet to come
// (see sendDelay).
func (v *hostSlot) reserveSend() bool {
	h := v.table
	h.mu.Lock()
	defer h.mu.Unlock()
	p, now := h.limiter(v.key.addr), h.now()
	v.nextSend = p.nextSendTime(now)
	if v.nextSend.After(now) {
		return false
	}
	p.recordSend()
	v.nextSend = time.Time{}
	v.sent++
	return true
}

// sendDelay returns the time until the next message may be sent. It is not positive if no message
// waits for its time.
func (v *hostSlot) sendDelay() time.Duration {
	if v.nextSend.IsZero() {
		return 0
	}
	return v.nextSend.Sub(v.table.now())
}

// recordReplies passes a host's replies to a message on to the limiter.
func (v *hostSlot) recordReplies(outcomes []smtpclient.Outcome) {
	h := v.table
	h.mu.Lock()
	defer h.mu.Unlock()
	p, now := h.limiter(v.key.addr), h.now()
	for _, o := range outcomes {
		switch yes, all := classifyRateLimitReply(o.Reply); {
		case yes:
			p.recordRateLimitReply(now, all, smtpclient.RedactAddresses(o.Stage, o.Reply.String()))
			h.admitWaiters(v.key.addr, h.active[v.key.addr])
			return
		case o.Class == smtpclient.Delivered:
			p.recordSuccess(now)
			h.admitWaiters(v.key.addr, h.active[v.key.addr])
			return
		}
	}
}

// recordHangup tells the limiter that the host hung up after that many recipients.
func (v *hostSlot) recordHangup(after int) {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	v.table.limiter(v.key.addr).recordHangup(v.table.now(), after)
}

// maxRecipients returns how many of a message's recipients one transaction may have.
func (v *hostSlot) maxRecipients(of int) int {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	return v.table.limiter(v.key.addr).maxRecipients(v.table.now(), of)
}

// RateLimitedHost is an address that has made us slower than the operator's limits.
type RateLimitedHost struct {
	Addr           netip.AddrPort
	MaxConnections int       // current limit
	MaxRate        float64   // current limit, messages per second; 0: none
	PausedUntil    time.Time // end of the pause; in the past: not paused
	LastComplaint  string    // text of the last complaint
}

// RateLimitedHosts lists the addresses that limit us, sorted by address and port.
func (a *Agent) RateLimitedHosts() []RateLimitedHost {
	h := a.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var all []RateLimitedHost
	for addr, p := range h.limiters {
		if p.isLimited(now) {
			all = append(all, RateLimitedHost{Addr: addr, MaxConnections: p.maxConnections(), MaxRate: p.rate, PausedUntil: p.pausedUntil, LastComplaint: p.reason})
		}
	}
	slices.SortFunc(all, func(a, b RateLimitedHost) int {
		return cmp.Or(a.Addr.Addr().Compare(b.Addr.Addr()), cmp.Compare(a.Addr.Port(), b.Addr.Port()))
	})
	return all
}
