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
	// deprioritizeTTL is how long an address comes last after a failed connection.
	deprioritizeTTL = 10 * time.Minute
	// redialDelay is how long an address is not dialled after a failure, so that destinations that
	// share a dead host don't each wait for it. It is shorter than the queue's first pause of a
	// destination, so that each later attempt really dials.
	redialDelay = 30 * time.Second
	// plaintextTTL is how long mail goes in clear to a host whose STARTTLS failed, before the next
	// try. A try may take a minute or more.
	plaintextTTL = 10 * time.Minute
	// maxRememberedHosts bounds the remembered failures, and (loosely) the limiters.
	maxRememberedHosts = 10_000
	// defaultMaxWaiters is how many sessions wait at one address while they keep their slot in the
	// queue, unless Options say otherwise. Further sessions release it while they wait, or
	// return after about as long as those before them take. So a slow host, even a
	// provider's that serves thousands of domains, never occupies all sessions of the queue.
	defaultMaxWaiters = 64
	minRetryDelay     = 200 * time.Millisecond
	maxRetryDelay     = 10 * time.Second
	// maxMessagesPerTurn is how many messages a session sends while others wait for its slot.
	maxMessagesPerTurn = 100
)

// hostTable holds what all sessions learned about each address, for any destination: whether it is
// down, its limits, and which sessions use it or wait for it.
type hostTable struct {
	now        func() time.Time
	maxConns   int     // operator's limit of connections to an address
	maxRate    float64 // messages per second; 0: no limit
	maxWaiters int     // sessions that wait at an address and keep their slot in the queue

	mu               sync.Mutex
	failures         map[hostKey]dialFailure
	tlsFailures      map[hostKey]time.Time // when opportunistic STARTTLS failed
	active           map[netip.AddrPort]*hostState
	limiters         map[netip.AddrPort]*hostLimiter
	limitersPrunedAt time.Time // when limiters were last pruned
	failuresPrunedAt time.Time // when failures were last pruned
}

// hostKey is an address and the policy under which its host is used: a host that fails one domain's
// policy may satisfy others.
type hostKey struct {
	addr   netip.AddrPort
	policy string // "" for any
}

type dialFailure struct {
	at  time.Time
	err *smtpclient.DialError
}

// hostState is an address in use.
type hostState struct {
	slots     int       // sessions that hold a slot
	connected int       // sessions with a connection
	released  int       // sessions that had a connection and have left
	evicted   int       // sessions that must leave because there are too many
	probing   bool      // whether a session is finding out if the host answers
	waiters   []*waiter // sessions that wait for that, or for a slot
}

// waiter is a waiting session. ready is closed when it may continue: with a slot if granted is set,
// else to check again.
type waiter struct {
	ready            chan struct{}
	granted, probing bool
}

// rateLimitError says that an address accepts nothing at the moment.
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

// hostSlot is a session's right to use an address, from acquire to release.
type hostSlot struct {
	table          *hostTable
	key            hostKey
	probing        bool // whether this session finds out if the host answers
	connected      bool
	evicted        bool
	acquiredAt     time.Time
	releasedBefore int // hostState.released at that time
	sent           int
	nextSend       time.Time // when the next message may be sent; zero: at once
}

// acquire waits for a slot at an address. While no session has a connection, one session tries and
// the others wait for its result, so a dead host is dialled once. Then a session waits for one of
// the slots that the limiter allows.
//
// The error says why the address can't be dialled now (*smtpclient.DialError) or accepts nothing
// yet (*rateLimitError), or is the context's. When many sessions wait, acquire calls releaseSlot to
// ask whether one more may; it calls back once that wait has ended.
func (h *hostTable) acquire(ctx context.Context, t hostKey, releaseSlot func() (back func(), ok bool)) (*hostSlot, error) {
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
			back, ok = releaseSlot()
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

// waitTurn waits until the waiter is ready, with h.mu unlocked meanwhile.
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

// cancelWait removes a waiter, and returns the slot that it was granted.
func (h *hostTable) cancelWait(a netip.AddrPort, l *hostState, w *waiter) {
	if w.granted {
		l.slots--
		l.probing = l.probing && !w.probing
	} else if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	h.admitWaiters(a, l)
}

// unavailableError says why no session may use an address now. h.mu must be held.
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

// canAcquire reports whether one more session may use an address, and whether it is the one that
// finds out if the host answers.
func (h *hostTable) canAcquire(a netip.AddrPort, l *hostState) (first, ok bool) {
	capacity := l.slots < h.limiter(a).maxConnections()
	if l.connected == 0 {
		return true, capacity && !l.probing
	}
	return false, capacity
}

func (h *hostTable) addSlot(l *hostState, first bool) {
	l.slots++
	l.probing = l.probing || first
}

// admitWaiters grants free slots to waiters, and drops the state of an unused address.
func (h *hostTable) admitWaiters(a netip.AddrPort, l *hostState) {
	all := h.unavailableError(hostKey{addr: a}) != nil // then each waiter gets the error
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

// markConnected records that the session has a connection.
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

// endProbe records that the session is done finding out if the host answers.
func (v *hostSlot) endProbe(l *hostState) {
	if v.probing {
		v.probing, l.probing = false, false
	}
}

// release gives up the slot. err, if not nil, says why the connection failed. release reports
// whether the host refused this connection while other sessions have one, or had one meanwhile.
// Their connections may be idle now.
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

// isHostFailure reports whether a failure concerns every client of the host, rather than our TLS
// requirements or our login.
func isHostFailure(err *smtpclient.DialError) bool {
	switch err.Stage {
	case smtpclient.StageStartTLS, smtpclient.StageHandshake, smtpclient.StageAuth:
		return false
	}
	return true
}

// recordFailure records a failed connection.
func (h *hostTable) recordFailure(t hostKey, err *smtpclient.DialError) {
	now := h.now()
	if isHostFailure(err) {
		t.policy = ""
		h.limiter(t.addr).recordRateLimitReply(now, false, err.Reply.String())
	}
	if len(h.failures) >= maxRememberedHosts && now.Sub(h.failuresPrunedAt) >= complaintWindow { // not for every failure
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

// recentlyFailed reports whether other addresses are to be tried before this one.
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
