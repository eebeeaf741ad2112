// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

// pace returns how fast mail may go to an address, and remembers it. h is locked.
func (h *hosts) pace(a netip.AddrPort) *pace {
	if p := h.paces[a]; p != nil {
		return p
	}
	p := newPace(h.most, h.top)
	if len(h.paces) >= maxKnown {
		h.forgetPaces(h.now())
	}
	if len(h.paces) < 2*maxKnown { // else all others rest, and it is for this once
		h.paces[a] = p
	}
	return p
}

// forgetPaces makes room for others: a host that is dead never gets its pace
// back, and there are always more of those. h is locked.
func (h *hosts) forgetPaces(now time.Time) {
	if now.Sub(h.forgot) < oneEvent { // not for each message
		return
	}
	h.forgot = now
	for k, old := range h.paces {
		if h.live[k] == nil && (old.idle(now) || old.past(now)) {
			delete(h.paces, k)
		}
	}
	for k, old := range h.paces {
		if len(h.paces) <= maxKnown*3/2 {
			return
		}
		if h.live[k] == nil && !now.Before(old.cool) {
			delete(h.paces, k)
		}
	}
}

// connections is how many there may be to the address.
func (v *visit) connections() int {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	return v.h.pace(v.terms.addr).connections()
}

// over reports whether the run shall leave: the host rests, there are too many
// runs, or it has had its turn while others wait.
func (v *visit) over() bool {
	h := v.h
	h.mu.Lock()
	defer h.mu.Unlock()
	l, p := h.live[v.terms.addr], h.pace(v.terms.addr)
	switch {
	case h.now().Before(p.cool), v.leaving:
		return true
	case l.visits-l.leaving > p.connections():
		v.leaving = true
		l.leaving++
		return true
	}
	return len(l.waiting) > 0 && v.sent >= turn
}

// goes takes the time of one message. It reports false if that is yet to come
// (see wait).
func (v *visit) goes() bool {
	h := v.h
	h.mu.Lock()
	defer h.mu.Unlock()
	p, now := h.pace(v.terms.addr), h.now()
	v.next = p.when(now)
	if v.next.After(now) {
		return false
	}
	p.goes()
	v.next = time.Time{}
	v.sent++
	return true
}

// wait is how long it is until the next message may go; not positive if none
// waits for its time.
func (v *visit) wait() time.Duration {
	if v.next.IsZero() {
		return 0
	}
	return v.next.Sub(v.h.now())
}

// heard tells the pace what a host answered to a message.
func (v *visit) heard(outcomes []smtpclient.Outcome) {
	h := v.h
	h.mu.Lock()
	defer h.mu.Unlock()
	p, now := h.pace(v.terms.addr), h.now()
	for _, o := range outcomes {
		switch yes, all := complains(o.Reply); {
		case yes:
			p.complaint(now, all, smtpclient.Anonymous(o.Stage, o.Reply.String()))
			h.settle(v.terms.addr, h.live[v.terms.addr])
			return
		case o.Class == smtpclient.Delivered:
			p.success(now)
			h.settle(v.terms.addr, h.live[v.terms.addr])
			return
		}
	}
}

// hungUp tells the pace that the host hung up after so many recipients.
func (v *visit) hungUp(after int) {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	v.h.pace(v.terms.addr).hangsUp(v.h.now(), after)
}

// recipients is how many of so many recipients a message may have.
func (v *visit) recipients(of int) int {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	return v.h.pace(v.terms.addr).recipients(v.h.now(), of)
}

// SlowHost is an address that has made us slower than the operator allows.
type SlowHost struct {
	Addr        netip.AddrPort
	Connections int       // at the most, now
	Rate        float64   // messages per second at the most; 0: no limit
	Until       time.Time // nothing is sent until then; past: mail goes
	Because     string    // its last complaint
}

// Slow lists the addresses that slow us down, in their order.
func (c *Courier) Slow() []SlowHost {
	h := c.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var all []SlowHost
	for a, p := range h.paces {
		if p.slowed(now) {
			all = append(all, SlowHost{Addr: a, Connections: p.connections(), Rate: p.rate, Until: p.cool, Because: p.because})
		}
	}
	slices.SortFunc(all, func(a, b SlowHost) int {
		return cmp.Or(a.Addr.Addr().Compare(b.Addr.Addr()), cmp.Compare(a.Addr.Port(), b.Addr.Port()))
	})
	return all
}
