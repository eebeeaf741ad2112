// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

// limiter returns how fast mail may go to an address, and remembers it. h is locked.
func (h *hostTable) limiter(a netip.AddrPort) *hostLimiter {
	if p := h.limiters[a]; p != nil {
		return p
	}
	p := newHostLimiter(h.maxConns, h.maxRate)
	if len(h.limiters) >= maxRememberedHosts {
		h.pruneLimiters(h.now())
	}
	if len(h.limiters) < 2*maxRememberedHosts { // else all others rest, and it is for this once
		h.limiters[a] = p
	}
	return p
}

// pruneLimiters makes room for others: a host that is dead never gets its pace
// back, and there are always more of those. h is locked.
func (h *hostTable) pruneLimiters(now time.Time) {
	if now.Sub(h.limitersPrunedAt) < complaintWindow { // not for each message
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

// maxConnections is how many there may be to the address.
func (v *hostSlot) maxConnections() int {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	return v.table.limiter(v.key.addr).maxConnections()
}

// mustRelease reports whether the run shall leave: the host rests, there are too many
// runs, or it has had its turn while others wait.
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

// reserveSend takes the time of one message. It reports false if that is yet to come
// (see wait).
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

// sendDelay is how long it is until the next message may go; not positive if none
// waits for its time.
func (v *hostSlot) sendDelay() time.Duration {
	if v.nextSend.IsZero() {
		return 0
	}
	return v.nextSend.Sub(v.table.now())
}

// recordReplies tells the pace what a host answered to a message.
func (v *hostSlot) recordReplies(outcomes []smtpclient.Outcome) {
	h := v.table
	h.mu.Lock()
	defer h.mu.Unlock()
	p, now := h.limiter(v.key.addr), h.now()
	for _, o := range outcomes {
		switch yes, all := classifyComplaint(o.Reply); {
		case yes:
			p.recordComplaint(now, all, smtpclient.RedactAddresses(o.Stage, o.Reply.String()))
			h.admitWaiters(v.key.addr, h.active[v.key.addr])
			return
		case o.Class == smtpclient.Delivered:
			p.recordSuccess(now)
			h.admitWaiters(v.key.addr, h.active[v.key.addr])
			return
		}
	}
}

// recordHangup tells the pace that the host hung up after so many recipients.
func (v *hostSlot) recordHangup(after int) {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	v.table.limiter(v.key.addr).recordHangup(v.table.now(), after)
}

// maxRecipients is how many of so many recipients a message may have.
func (v *hostSlot) maxRecipients(of int) int {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	return v.table.limiter(v.key.addr).maxRecipients(v.table.now(), of)
}

// RateLimitedHost is an address that has made us slower than the operator allows.
type RateLimitedHost struct {
	Addr           netip.AddrPort
	MaxConnections int       // at the most, now
	MaxRate        float64   // messages per second at the most; 0: no limit
	PausedUntil    time.Time // nothing is sent until then; past: mail goes
	LastComplaint  string    // its last complaint
}

// RateLimitedHosts lists the addresses that slow us down, in their order.
func (c *Agent) RateLimitedHosts() []RateLimitedHost {
	h := c.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var all []RateLimitedHost
	for a, p := range h.limiters {
		if p.isLimited(now) {
			all = append(all, RateLimitedHost{Addr: a, MaxConnections: p.maxConnections(), MaxRate: p.rate, PausedUntil: p.pausedUntil, LastComplaint: p.reason})
		}
	}
	slices.SortFunc(all, func(a, b RateLimitedHost) int {
		return cmp.Or(a.Addr.Addr().Compare(b.Addr.Addr()), cmp.Compare(a.Addr.Port(), b.Addr.Port()))
	})
	return all
}
