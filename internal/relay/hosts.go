// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

const (
	// avoid is how long an address that had no conversation for us comes last.
	avoid = 10 * time.Minute
	// shun is how long it is not dialled at all: destinations that share a
	// dead host then don't each wait for it. It is shorter than the queue's
	// first pause of a destination, so that each later try is a real one.
	shun = 30 * time.Second
	// maxHosts bounds the memory; past it everything old is forgotten.
	maxHosts = 10_000
)

// hosts remembers addresses that could not be spoken to, whichever
// destination led to them.
type hosts struct {
	now func() time.Time

	mu     sync.Mutex
	failed map[netip.AddrPort]failure
}

type failure struct {
	at  time.Time
	err *smtpclient.DialError
}

func newHosts(now func() time.Time) *hosts {
	return &hosts{now: now, failed: map[netip.AddrPort]failure{}}
}

// down notes that there is no conversation to be had at an address.
func (h *hosts) down(a netip.AddrPort, err *smtpclient.DialError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if len(h.failed) >= maxHosts {
		for k, f := range h.failed {
			if now.Sub(f.at) >= shun {
				delete(h.failed, k)
			}
		}
	}
	if len(h.failed) < maxHosts {
		h.failed[a] = failure{now, err}
	}
}

// up notes that an address works.
func (h *hosts) up(a netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failed, a)
}

// shunned returns why an address is not to be dialled now; nil if it may be.
func (h *hosts) shunned(a netip.AddrPort) *smtpclient.DialError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f, ok := h.failed[a]; ok && h.now().Sub(f.at) < shun {
		return f.err
	}
	return nil
}

// avoided reports whether others are to be tried before an address.
func (h *hosts) avoided(a netip.AddrPort) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.failed[a]
	return ok && h.now().Sub(f.at) < avoid
}
