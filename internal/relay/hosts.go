// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
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
	// maxFailed bounds the memory of failures.
	maxFailed = 10_000
)

// hosts knows of each address that mail goes to what all runs learned of it,
// whichever destination led them there.
type hosts struct {
	now func() time.Time

	mu     sync.Mutex
	failed map[netip.AddrPort]failure
	live   map[netip.AddrPort]*live
}

type failure struct {
	at  time.Time
	err *smtpclient.DialError
}

// live is an address that runs are at.
type live struct {
	visits  int             // runs that try it, or talk
	talking int             // runs that have a conversation
	trying  chan struct{}   // a run finds out whether there is one to be had; closed then
	waiting []chan struct{} // runs that wait for one of those talking to end
}

func newHosts(now func() time.Time) *hosts {
	return &hosts{now: now, failed: map[netip.AddrPort]failure{}, live: map[netip.AddrPort]*live{}}
}

// visit is a run's time at an address.
type visit struct {
	h       *hosts
	a       netip.AddrPort
	first   chan struct{} // this run is the one that finds out
	talking bool
}

// enter lets a run try an address. Where nobody has a conversation, one run
// tries and the others wait for what it finds: a dead host is dialled once, and
// not by all. It returns why the address is not to be dialled now, or the
// context's error.
func (h *hosts) enter(ctx context.Context, a netip.AddrPort) (*visit, error) {
	for {
		h.mu.Lock()
		if f, ok := h.failed[a]; ok && h.now().Sub(f.at) < shun {
			h.mu.Unlock()
			return nil, f.err
		}
		l := h.live[a]
		if l == nil {
			l = &live{}
			h.live[a] = l
		}
		v := &visit{h: h, a: a}
		if l.talking == 0 && l.trying == nil {
			v.first = make(chan struct{})
			l.trying = v.first
		}
		wait := l.trying
		if l.talking > 0 || v.first != nil {
			wait = nil
			l.visits++
		}
		h.mu.Unlock()
		if wait == nil {
			return v, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// talk notes that the run has a conversation.
func (v *visit) talk() {
	if v.talking {
		return
	}
	v.talking = true
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	delete(v.h.failed, v.a)
	l := v.h.live[v.a]
	l.talking++
	v.found(l)
}

// found tells those who wait for what the first run found.
func (v *visit) found(l *live) {
	if v.first != nil {
		close(v.first)
		v.first, l.trying = nil, nil
	}
}

// leave ends the run's time at the address; err, if not nil, says why no
// conversation was to be had. It reports whether others have one.
func (v *visit) leave(err *smtpclient.DialError) (company bool) {
	h := v.h
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.live[v.a]
	l.visits--
	if v.talking {
		l.talking--
		l.wake()
	}
	company = l.talking > 0
	if err != nil && !company {
		h.down(v.a, err)
	}
	v.found(l)
	h.tidy(v.a, l)
	return company
}

func (l *live) wake() {
	if len(l.waiting) > 0 {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}

// tidy lets nobody wait where nobody talks, and forgets what nobody is at.
func (h *hosts) tidy(a netip.AddrPort, l *live) {
	for l.talking == 0 && len(l.waiting) > 0 {
		l.wake()
	}
	if l.visits == 0 {
		delete(h.live, a)
	}
}

func (h *hosts) down(a netip.AddrPort, err *smtpclient.DialError) {
	now := h.now()
	if len(h.failed) >= maxFailed {
		for k, f := range h.failed {
			if now.Sub(f.at) >= shun {
				delete(h.failed, k)
			}
		}
	}
	if len(h.failed) < maxFailed {
		h.failed[a] = failure{now, err}
	}
}

// ended returns a channel that is closed when a conversation at the address
// has ended; nil if there is none.
func (h *hosts) ended(a netip.AddrPort) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.live[a]
	if l == nil || l.talking == 0 {
		return nil
	}
	c := make(chan struct{})
	l.waiting = append(l.waiting, c)
	return c
}

// pass hands on the end of a conversation by a run that has no use for it.
func (h *hosts) pass(a netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.live[a]; l != nil {
		l.wake()
	}
}

// avoided reports whether others are to be tried before an address.
func (h *hosts) avoided(a netip.AddrPort) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.failed[a]
	return ok && h.now().Sub(f.at) < avoid
}
