// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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
	// plain is how long mail goes in clear to a host whose STARTTLS failed,
	// before the next try: each may take a minute and more.
	plain = 10 * time.Minute
	// maxKnown bounds the memory of failures, and that of paces.
	maxKnown = 10_000
	// maxWaiters is how many runs wait at one address as runs, unless Options
	// say otherwise. Further ones give their place in the queue to others
	// meanwhile, or come again after a rest, about as long as those before them
	// take: so a host that is slow, and a provider's is for thousands of
	// domains, never takes all runs of the queue.
	maxWaiters = 64
	leastRest  = 200 * time.Millisecond
	mostRest   = 10 * time.Second
	// turn is how many messages a run sends while others wait for its place.
	turn = 100
)

// hosts knows of each address that mail goes to what all runs learned of it,
// whichever destination led them there: whether it is down, how fast mail may
// go there, and who is at it.
type hosts struct {
	now     func() time.Time
	most    int     // connections to an address
	top     float64 // messages per second; 0: no limit
	waiters int     // runs that wait at an address as such

	mu     sync.Mutex
	failed map[terms]failure
	noTLS  map[terms]time.Time // when STARTTLS failed where nobody demands it
	live   map[netip.AddrPort]*live
	paces  map[netip.AddrPort]*pace
	forgot time.Time // when paces were last looked through for old ones
	swept  time.Time // when failed was
}

// terms are an address, and on what terms a host there is talked to: one that
// does not live up to one domain's policy may do for others.
type terms struct {
	addr netip.AddrPort
	what string // "" for all
}

type failure struct {
	at  time.Time
	err *smtpclient.DialError
}

// live is an address that runs are at.
type live struct {
	visits  int       // runs that try it, or talk
	talking int       // runs that have a conversation
	talked  int       // those that had one, and have left
	leaving int       // visits that end because they are too many
	trying  bool      // a run finds out whether there is a conversation to be had
	waiting []*waiter // for that, or for a place
}

// waiter is a run that waits. turn is closed when it shall go on: with a
// place, or else to look again.
type waiter struct {
	turn           chan struct{}
	granted, first bool
}

// slowed tells that an address takes nothing at the moment.
type slowed struct {
	until time.Time
	why   string
}

func (s *slowed) Error() string { return s.why }

func newHosts(now func() time.Time, most int, top float64, waiters int) *hosts {
	return &hosts{
		now: now, most: most, top: top, waiters: waiters,
		failed: map[terms]failure{}, noTLS: map[terms]time.Time{}, live: map[netip.AddrPort]*live{}, paces: map[netip.AddrPort]*pace{},
	}
}

// visit is a run's time at an address.
type visit struct {
	h       *hosts
	terms   terms
	first   bool // this run is the one that finds out
	talking bool
	leaving bool
	begun   time.Time
	talked  int // live.talked at that time
	sent    int
	next    time.Time // when the next message may go; zero: at once
}

// enter lets a run try an address. Where nobody has a conversation, one run
// tries and the others wait for what it finds: a dead host is dialled once, and
// not by all. Then it waits for a place among those that the pace allows. It
// returns why the address is not to be dialled now (*smtpclient.DialError), or
// not yet (*slowed), or the context's error. When many wait, aside is asked
// whether one more may; it gets another call when that has ended.
func (h *hosts) enter(ctx context.Context, t terms, aside func() (back func(), ok bool)) (*visit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if err := h.closed(t); err != nil {
			return nil, err
		}
		l := h.live[t.addr]
		if l == nil {
			l = &live{}
			h.live[t.addr] = l
		}
		if first, ok := h.place(t.addr, l); ok && len(l.waiting) == 0 {
			h.take(l, first)
			return &visit{h: h, terms: t, first: first, begun: h.now(), talked: l.talked}, nil
		}
		back, ok := func() {}, true
		if len(l.waiting) >= h.waiters {
			back, ok = aside()
		}
		if !ok {
			p := h.pace(t.addr)
			why := fmt.Sprintf("much mail waits for %s, which takes %d connections from us", t.addr.Addr(), p.connections())
			return nil, &slowed{h.now().Add(p.rest(len(l.waiting))), why}
		}
		w := &waiter{turn: make(chan struct{})}
		l.waiting = append(l.waiting, w)
		err := h.await(ctx, w)
		back()
		if err != nil {
			h.quit(t.addr, l, w)
			return nil, err
		}
		if !w.granted {
			continue
		}
		if err := h.closed(t); err != nil {
			h.quit(t.addr, l, w)
			return nil, err
		}
		return &visit{h: h, terms: t, first: w.first, begun: h.now(), talked: l.talked}, nil
	}
}

// await waits for a turn, with h unlocked meanwhile.
func (h *hosts) await(ctx context.Context, w *waiter) error {
	h.mu.Unlock()
	defer h.mu.Lock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// quit ends a run's waiting, and gives back the place that it was given.
func (h *hosts) quit(a netip.AddrPort, l *live, w *waiter) {
	if w.granted {
		l.visits--
		l.trying = l.trying && !w.first
	} else if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	h.settle(a, l)
}

// closed says why nobody is let in.
func (h *hosts) closed(t terms) error {
	now := h.now()
	for _, k := range []terms{t, {addr: t.addr}} {
		if f, ok := h.failed[k]; ok && now.Sub(f.at) < shun {
			return f.err
		}
	}
	if p := h.paces[t.addr]; p != nil && now.Before(p.cool) {
		return &slowed{p.cool, fmt.Sprintf("%s asked us to slow down: %s", t.addr.Addr(), p.because)}
	}
	return nil
}

// place reports whether one more run may be at an address, and whether it is
// the one that finds out.
func (h *hosts) place(a netip.AddrPort, l *live) (first, ok bool) {
	room := l.visits < h.pace(a).connections()
	if l.talking == 0 {
		return true, room && !l.trying
	}
	return false, room
}

func (h *hosts) take(l *live, first bool) {
	l.visits++
	l.trying = l.trying || first
}

// settle gives places to those who wait, as far as there are any, and forgets
// what nobody is at.
func (h *hosts) settle(a netip.AddrPort, l *live) {
	all := h.closed(terms{addr: a}) != nil // then they shall hear why
	for len(l.waiting) > 0 {
		w := l.waiting[0]
		if !all {
			first, ok := h.place(a, l)
			if !ok {
				break
			}
			w.granted, w.first = true, first
			h.take(l, first)
		}
		l.waiting = l.waiting[1:]
		close(w.turn)
	}
	if l.visits == 0 && len(l.waiting) == 0 && h.live[a] == l {
		delete(h.live, a)
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
	delete(v.h.failed, v.terms)
	delete(v.h.failed, terms{addr: v.terms.addr})
	l := v.h.live[v.terms.addr]
	l.talking++
	v.found(l)
	v.h.settle(v.terms.addr, l)
}

// found ends the finding out.
func (v *visit) found(l *live) {
	if v.first {
		v.first, l.trying = false, false
	}
}

// leave ends the run's time at the address; err, if not nil, says why no
// conversation was to be had. It reports whether others have one, or had one
// meanwhile: their connections may be idle now.
func (v *visit) leave(err *smtpclient.DialError) (company bool) {
	h, a := v.h, v.terms.addr
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.live[a]
	l.visits--
	company = l.talked != v.talked
	if v.talking {
		l.talking--
		l.talked++
	}
	if v.leaving {
		l.leaving--
	}
	company = company || l.talking > 0
	h.pace(a).stayed(h.now().Sub(v.begun))
	switch {
	case err == nil:
	case company && general(err):
		h.pace(a).refused(l.talking, err.Reply.String())
	default:
		h.down(v.terms, err)
	}
	v.found(l)
	h.settle(a, l)
	return company && err != nil && general(err)
}

// general reports whether a failure is the host's with everyone, and not with
// what we want of its TLS or of our login.
func general(err *smtpclient.DialError) bool {
	switch err.Stage {
	case smtpclient.StageStartTLS, smtpclient.StageHandshake, smtpclient.StageAuth:
		return false
	}
	return true
}

// down notes a failure.
func (h *hosts) down(t terms, err *smtpclient.DialError) {
	now := h.now()
	if general(err) {
		t.what = ""
		h.pace(t.addr).complaint(now, false, err.Reply.String())
	}
	if len(h.failed) >= maxKnown && now.Sub(h.swept) >= oneEvent { // not for each failure
		h.swept = now
		for k, f := range h.failed {
			if now.Sub(f.at) >= shun {
				delete(h.failed, k)
			}
		}
	}
	if _, known := h.failed[t]; known || len(h.failed) < maxKnown {
		h.failed[t] = failure{now, err}
	}
}

// avoided reports whether others are to be tried before an address.
func (h *hosts) avoided(t terms) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for _, k := range []terms{t, {addr: t.addr}} {
		if f, ok := h.failed[k]; ok && now.Sub(f.at) < avoid {
			return true
		}
	}
	return false
}
