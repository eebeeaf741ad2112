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
	// deprioritizeTTL is how long an address that had no conversation for us comes last.
	deprioritizeTTL = 10 * time.Minute
	// redialDelay is how long it is not dialled at all: destinations that share a
	// dead host then don't each wait for it. It is shorter than the queue's
	// first pause of a destination, so that each later try is a real one.
	redialDelay = 30 * time.Second
	// plaintextTTL is how long mail goes in clear to a host whose STARTTLS failed,
	// before the next try: each may take a minute and more.
	plaintextTTL = 10 * time.Minute
	// maxRememberedHosts bounds the memory of failures, and that of paces.
	maxRememberedHosts = 10_000
	// defaultMaxWaiters is how many runs wait at one address as runs, unless Options
	// say otherwise. Further ones give their place in the queue to others
	// meanwhile, or come again after a rest, about as long as those before them
	// take: so a host that is slow, and a provider's is for thousands of
	// domains, never takes all runs of the queue.
	defaultMaxWaiters = 64
	minRetryDelay     = 200 * time.Millisecond
	maxRetryDelay     = 10 * time.Second
	// maxMessagesPerTurn is how many messages a run sends while others wait for its place.
	maxMessagesPerTurn = 100
)

// hostTable knows of each address that mail goes to what all runs learned of it,
// whichever destination led them there: whether it is down, how fast mail may
// go there, and who is at it.
type hostTable struct {
	now        func() time.Time
	maxConns   int     // connections to an address
	maxRate    float64 // messages per second; 0: no limit
	maxWaiters int     // runs that wait at an address as such

	mu               sync.Mutex
	failures         map[hostKey]dialFailure
	tlsFailures      map[hostKey]time.Time // when STARTTLS failed where nobody demands it
	active           map[netip.AddrPort]*hostState
	limiters         map[netip.AddrPort]*hostLimiter
	limitersPrunedAt time.Time // when paces were last looked through for old ones
	failuresPrunedAt time.Time // when failed was
}

// hostKey are an address, and on what terms a host there is talked to: one that
// does not live up to one domain's policy may do for others.
type hostKey struct {
	addr   netip.AddrPort
	policy string // "" for all
}

type dialFailure struct {
	at  time.Time
	err *smtpclient.DialError
}

// hostState is an address that runs are at.
type hostState struct {
	slots     int       // runs that try it, or talk
	connected int       // runs that have a conversation
	released  int       // those that had one, and have left
	evicted   int       // visits that end because they are too many
	probing   bool      // a run finds out whether there is a conversation to be had
	waiters   []*waiter // for that, or for a place
}

// waiter is a run that waits. turn is closed when it shall go on: with a
// place, or else to look again.
type waiter struct {
	ready            chan struct{}
	granted, probing bool
}

// rateLimitError tells that an address takes nothing at the moment.
type rateLimitError struct {
	retryAt time.Time
	reason  string
}

func (s *rateLimitError) Error() string { return s.reason }

func newHostTable(now func() time.Time, most int, top float64, waiters int) *hostTable {
	return &hostTable{
		now: now, maxConns: most, maxRate: top, maxWaiters: waiters,
		failures: map[hostKey]dialFailure{}, tlsFailures: map[hostKey]time.Time{}, active: map[netip.AddrPort]*hostState{}, limiters: map[netip.AddrPort]*hostLimiter{},
	}
}

// hostSlot is a run's time at an address.
type hostSlot struct {
	table          *hostTable
	key            hostKey
	probing        bool // this run is the one that finds out
	connected      bool
	evicted        bool
	acquiredAt     time.Time
	releasedBefore int // live.talked at that time
	sent           int
	nextSend       time.Time // when the next message may go; zero: at once
}

// acquire lets a run try an address. Where nobody has a conversation, one run
// tries and the others wait for what it finds: a dead host is dialled once, and
// not by all. Then it waits for a place among those that the pace allows. It
// returns why the address is not to be dialled now (*smtpclient.DialError), or
// not yet (*slowed), or the context's error. When many wait, aside is asked
// whether one more may; it gets another call when that has ended.
func (h *hostTable) acquire(ctx context.Context, t hostKey, aside func() (back func(), ok bool)) (*hostSlot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if err := h.unavailableError(t); err != nil {
			return nil, err
		}
		l := h.active[t.addr]
		if l == nil {
			l = &hostState{}
			h.active[t.addr] = l
		}
		if first, ok := h.canAcquire(t.addr, l); ok && len(l.waiters) == 0 {
			h.addSlot(l, first)
			return &hostSlot{table: h, key: t, probing: first, acquiredAt: h.now(), releasedBefore: l.released}, nil
		}
		back, ok := func() {}, true
		if len(l.waiters) >= h.maxWaiters {
			back, ok = aside()
		}
		if !ok {
			p := h.limiter(t.addr)
			why := fmt.Sprintf("much mail waits for %s, which takes %d connections from us", t.addr.Addr(), p.maxConnections())
			return nil, &rateLimitError{h.now().Add(p.estimateWait(len(l.waiters))), why}
		}
		w := &waiter{ready: make(chan struct{})}
		l.waiters = append(l.waiters, w)
		err := h.waitTurn(ctx, w)
		back()
		if err != nil {
			h.cancelWait(t.addr, l, w)
			return nil, err
		}
		if !w.granted {
			continue
		}
		if err := h.unavailableError(t); err != nil {
			h.cancelWait(t.addr, l, w)
			return nil, err
		}
		return &hostSlot{table: h, key: t, probing: w.probing, acquiredAt: h.now(), releasedBefore: l.released}, nil
	}
}

// waitTurn waits for a turn, with h unlocked meanwhile.
func (h *hostTable) waitTurn(ctx context.Context, w *waiter) error {
	h.mu.Unlock()
	defer h.mu.Lock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cancelWait ends a run's waiting, and gives back the place that it was given.
func (h *hostTable) cancelWait(a netip.AddrPort, l *hostState, w *waiter) {
	if w.granted {
		l.slots--
		l.probing = l.probing && !w.probing
	} else if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	h.admitWaiters(a, l)
}

// unavailableError says why nobody is let in.
func (h *hostTable) unavailableError(t hostKey) error {
	now := h.now()
	for _, k := range []hostKey{t, {addr: t.addr}} {
		if f, ok := h.failures[k]; ok && now.Sub(f.at) < redialDelay {
			return f.err
		}
	}
	if p := h.limiters[t.addr]; p != nil && now.Before(p.pausedUntil) {
		return &rateLimitError{p.pausedUntil, fmt.Sprintf("%s asked us to slow down: %s", t.addr.Addr(), p.reason)}
	}
	return nil
}

// canAcquire reports whether one more run may be at an address, and whether it is
// the one that finds out.
func (h *hostTable) canAcquire(a netip.AddrPort, l *hostState) (first, ok bool) {
	room := l.slots < h.limiter(a).maxConnections()
	if l.connected == 0 {
		return true, room && !l.probing
	}
	return false, room
}

func (h *hostTable) addSlot(l *hostState, first bool) {
	l.slots++
	l.probing = l.probing || first
}

// admitWaiters gives places to those who wait, as far as there are any, and forgets
// what nobody is at.
func (h *hostTable) admitWaiters(a netip.AddrPort, l *hostState) {
	all := h.unavailableError(hostKey{addr: a}) != nil // then they shall hear why
	for len(l.waiters) > 0 {
		w := l.waiters[0]
		if !all {
			first, ok := h.canAcquire(a, l)
			if !ok {
				break
			}
			w.granted, w.probing = true, first
			h.addSlot(l, first)
		}
		l.waiters = l.waiters[1:]
		close(w.ready)
	}
	if l.slots == 0 && len(l.waiters) == 0 && h.active[a] == l {
		delete(h.active, a)
	}
}

// markConnected notes that the run has a conversation.
func (v *hostSlot) markConnected() {
	if v.connected {
		return
	}
	v.connected = true
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	delete(v.table.failures, v.key)
	delete(v.table.failures, hostKey{addr: v.key.addr})
	l := v.table.active[v.key.addr]
	l.connected++
	v.endProbe(l)
	v.table.admitWaiters(v.key.addr, l)
}

// endProbe ends the finding out.
func (v *hostSlot) endProbe(l *hostState) {
	if v.probing {
		v.probing, l.probing = false, false
	}
}

// release ends the run's time at the address; err, if not nil, says why no
// conversation was to be had. It reports whether others have one, or had one
// meanwhile: their connections may be idle now.
func (v *hostSlot) release(err *smtpclient.DialError) (company bool) {
	h, a := v.table, v.key.addr
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.active[a]
	l.slots--
	company = l.released != v.releasedBefore
	if v.connected {
		l.connected--
		l.released++
	}
	if v.evicted {
		l.evicted--
	}
	company = company || l.connected > 0
	h.limiter(a).recordSlotTime(h.now().Sub(v.acquiredAt))
	switch {
	case err == nil:
	case company && isHostFailure(err):
		h.limiter(a).recordConnRefused(l.connected, err.Reply.String())
	default:
		h.recordFailure(v.key, err)
	}
	v.endProbe(l)
	h.admitWaiters(a, l)
	return company && err != nil && isHostFailure(err)
}

// isHostFailure reports whether a failure is the host's with everyone, and not with
// what we want of its TLS or of our login.
func isHostFailure(err *smtpclient.DialError) bool {
	switch err.Stage {
	case smtpclient.StageStartTLS, smtpclient.StageHandshake, smtpclient.StageAuth:
		return false
	}
	return true
}

// recordFailure notes a failure.
func (h *hostTable) recordFailure(t hostKey, err *smtpclient.DialError) {
	now := h.now()
	if isHostFailure(err) {
		t.policy = ""
		h.limiter(t.addr).recordComplaint(now, false, err.Reply.String())
	}
	if len(h.failures) >= maxRememberedHosts && now.Sub(h.failuresPrunedAt) >= complaintWindow { // not for each failure
		h.failuresPrunedAt = now
		for k, f := range h.failures {
			if now.Sub(f.at) >= redialDelay {
				delete(h.failures, k)
			}
		}
	}
	if _, known := h.failures[t]; known || len(h.failures) < maxRememberedHosts {
		h.failures[t] = dialFailure{now, err}
	}
}

// recentlyFailed reports whether others are to be tried before an address.
func (h *hostTable) recentlyFailed(t hostKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for _, k := range []hostKey{t, {addr: t.addr}} {
		if f, ok := h.failures[k]; ok && now.Sub(f.at) < deprioritizeTTL {
			return true
		}
	}
	return false
}
