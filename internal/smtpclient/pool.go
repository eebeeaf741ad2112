// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ErrPoolClosed is the error of a closed Pool.
var ErrPoolClosed = errors.New("smtpclient: the pool is closed")

// Pool keeps connections for later messages to the same host under the same policy. It is safe for
// concurrent use.
type Pool struct {
	idleTime    time.Duration
	maxPerHost  int
	maxMessages int
	maxIdle     int
	tlsSessions tls.ClientSessionCache

	mu      sync.Mutex
	hosts   map[netip.AddrPort]*poolHost
	total   int // number of connections, including those being dialled or closed
	idle    int
	closed  bool
	done    chan struct{} // closed by Close
	drained chan struct{} // closed once the pool is closed and total is 0
}

// PoolLimits are the limits of a Pool. For a zero field the default given beside it applies.
type PoolLimits struct {
	IdleTime    time.Duration // how long a connection waits for a next message; 5 s
	MaxPerHost  int           // connections to one address at a time, in use or idle; 10
	MaxMessages int           // messages over one connection; 1,000
	MaxIdle     int           // idle connections, for all hosts together; 500
}

// poolKey holds the values that must be equal for two messages to share a connection.
type poolKey struct {
	addr                    netip.AddrPort
	localIP                 netip.Addr
	host, localName, policy string
	user, password          string
	mode                    TLSMode
	verify                  bool
}

// poolHost is one address with all its connections.
type poolHost struct {
	conns   int // number of connections, including those being dialled or closed
	closing int // number of those that are being closed
	idle    []*idleConn
	waiters []*waiter
}

// waiter is a Get call that waits. It receives a connection, or nil if it may dial one.
type waiter struct {
	key      poolKey
	maxConns int
	ready    chan *Conn
}

type idleConn struct {
	c     *Conn
	key   poolKey
	timer *time.Timer
}

// NewPool returns an empty pool.
func NewPool(l PoolLimits) *Pool {
	return &Pool{
		idleTime:    cmp.Or(l.IdleTime, 5*time.Second),
		maxPerHost:  cmp.Or(l.MaxPerHost, 10),
		maxMessages: cmp.Or(l.MaxMessages, 1000),
		maxIdle:     cmp.Or(l.MaxIdle, 500),
		tlsSessions: tls.NewLRUClientSessionCache(512),
		hosts:       map[netip.AddrPort]*poolHost{},
		done:        make(chan struct{}),
		drained:     make(chan struct{}),
	}
}

func (o *Options) key() poolKey {
	k := poolKey{
		addr: o.Addr, localIP: o.LocalIP, host: o.Host, localName: o.LocalName, policy: o.PolicyKey,
		mode: o.TLS, verify: o.Verify,
	}
	if o.Auth != nil {
		k.user, k.password = o.Auth.User, o.Auth.Password
	}
	return k
}

// Get returns an idle connection, or dials one. If as many connections as allowed are in use, it
// waits. The error is a *DialError, ErrPoolClosed or the context's. Return every connection with
// Put.
func (p *Pool) Get(ctx context.Context, o Options) (*Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	w := &waiter{key: o.key(), maxConns: p.maxPerHost, ready: make(chan *Conn, 1)}
	if o.MaxConns > 0 {
		w.maxConns = min(w.maxConns, o.MaxConns)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrPoolClosed
	}
	h := p.hosts[o.Addr]
	if h == nil {
		h = &poolHost{}
		p.hosts[o.Addr] = h
	}
	if last := p.takeIdle(h, w.key); last != nil {
		p.mu.Unlock()
		last.timer.Stop() // if it has fired already, expire does not find the connection
		return last.c, nil
	}
	h.waiters = append(h.waiters, w)
	p.grantDials(h)
	for len(h.idle) > 0 && slices.Contains(h.waiters, w) && h.conns-h.closing >= w.maxConns { // idle connections that only others can use
		p.closeIdle(o.Addr, h, h.idle[0])
	}
	p.mu.Unlock()
	select {
	case c := <-w.ready:
		if c != nil {
			return c, nil
		}
		return p.dial(ctx, o)
	case <-ctx.Done():
	case <-p.done:
	}
	p.cancelWait(o.Addr, w)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return nil, ErrPoolClosed
}

// takeIdle removes and returns the most recently used idle connection for k, or nil.
func (p *Pool) takeIdle(h *poolHost, k poolKey) *idleConn {
	for i := len(h.idle) - 1; i >= 0; i-- {
		if one := h.idle[i]; one.key == k {
			h.idle = append(h.idle[:i], h.idle[i+1:]...)
			p.idle--
			return one
		}
	}
	return nil
}

// grantDials lets waiters dial, in order, as far as their limits allow. p.mu must be held.
func (p *Pool) grantDials(h *poolHost) {
	for len(h.waiters) > 0 && h.conns < h.waiters[0].maxConns && !p.closed {
		w := h.waiters[0]
		h.waiters = h.waiters[1:]
		h.conns++
		p.total++
		w.ready <- nil
	}
}

// cancelWait removes a waiter, and passes on what it was granted meanwhile.
func (p *Pool) cancelWait(a netip.AddrPort, w *waiter) {
	p.mu.Lock()
	h := p.hosts[a]
	if h != nil {
		if i := slices.Index(h.waiters, w); i >= 0 {
			h.waiters = slices.Delete(h.waiters, i, i+1)
			p.removeIfUnused(a, h)
			p.mu.Unlock()
			return
		}
	}
	p.mu.Unlock()
	if c := <-w.ready; c != nil {
		p.Put(c)
		return
	}
	p.mu.Lock()
	p.releaseSlot(a, h)
	p.decrementTotal()
	p.mu.Unlock()
}

func (p *Pool) dial(ctx context.Context, o Options) (*Conn, error) {
	if o.TLS != TLSNever {
		cfg := &tls.Config{}
		if o.TLSConfig != nil {
			cfg = o.TLSConfig.Clone()
		}
		if cfg.ClientSessionCache == nil && o.TLSConfig == nil {
			cfg.ClientSessionCache = p.tlsSessions
		}
		o.TLSConfig = cfg
	}
	c, err := Dial(ctx, o)
	if err != nil {
		p.mu.Lock()
		p.releaseSlot(o.Addr, p.hosts[o.Addr])
		p.decrementTotal()
		p.mu.Unlock()
		return nil, err
	}
	return c, nil
}

// Put returns a connection to the pool, usable or not.
func (p *Pool) Put(c *Conn) {
	a, k := c.opts.Addr, c.opts.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[a]
	if p.closed || !c.Usable() || c.transactions >= p.maxMessages {
		p.closeAsync(a, h, c)
		return
	}
	for i, w := range h.waiters {
		if w.key == k {
			h.waiters = slices.Delete(h.waiters, i, i+1)
			w.ready <- c
			return
		}
	}
	if p.idle >= p.maxIdle || len(h.waiters) > 0 {
		p.closeAsync(a, h, c)
		return
	}
	p.idle++
	one := &idleConn{c: c, key: k}
	one.timer = time.AfterFunc(p.idleTime, func() { p.expire(a, one) })
	h.idle = append(h.idle, one)
}

// expire closes a connection that was idle for too long.
func (p *Pool) expire(a netip.AddrPort, one *idleConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.hosts[a]; h != nil && slices.Contains(h.idle, one) {
		p.closeIdle(a, h, one)
	}
}

// closeIdle closes an idle connection. p.mu must be held.
func (p *Pool) closeIdle(a netip.AddrPort, h *poolHost, one *idleConn) {
	one.timer.Stop()
	i := slices.Index(h.idle, one)
	h.idle = slices.Delete(h.idle, i, i+1)
	p.idle--
	p.closeAsync(a, h, one.c)
}

// closeAsync closes a connection in the background, since QUIT may take time, and then releases its
// slot. p.mu must be held.
func (p *Pool) closeAsync(a netip.AddrPort, h *poolHost, c *Conn) {
	h.closing++
	go func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		h.closing--
		p.releaseSlot(a, h)
		p.decrementTotal()
	}()
}

// releaseSlot frees a connection's slot, for the first waiter. p.mu must be held.
func (p *Pool) releaseSlot(a netip.AddrPort, h *poolHost) {
	h.conns--
	p.grantDials(h)
	p.removeIfUnused(a, h)
}

// removeIfUnused drops an address without connections and waiters.
func (p *Pool) removeIfUnused(a netip.AddrPort, h *poolHost) {
	if h.conns == 0 && len(h.waiters) == 0 && p.hosts[a] == h {
		delete(p.hosts, a)
	}
}

// decrementTotal counts one connection less. p.mu must be held.
func (p *Pool) decrementTotal() {
	p.total--
	if p.closed && p.total == 0 {
		close(p.drained)
	}
}

// Close closes the idle connections with QUIT, and waits until those in use have been put back and
// closed. If ctx ends before, it returns the context's error. Call it once.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	close(p.done)
	for a, h := range p.hosts {
		for len(h.idle) > 0 {
			p.closeIdle(a, h, h.idle[0])
		}
	}
	if p.total == 0 {
		close(p.drained)
	}
	p.mu.Unlock()
	select {
	case <-p.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SendAll sends the messages that next returns, until that returns nil. It uses as many connections
// as necessary, one after the other. It replaces a connection that the host has closed or that has
// reached MaxMessages, and sends the unsent messages over the next one.
//
// An error means that no connection could be opened for the messages that next still holds. Every
// message that next returned is reported once. If a message met a dead connection and there is no
// new one for it, its outcome is that of the failed dial.
func (p *Pool) SendAll(ctx context.Context, o Options, next func() *Message, report func(*Message, *Result)) error {
	var again []*Message // messages to send first: fetched but not sent
	exhausted := false
	take := func() *Message {
		if len(again) > 0 {
			m := again[0]
			again = again[1:]
			return m
		}
		m := next()
		exhausted = m == nil
		return m
	}
	for {
		c, err := p.Get(ctx, o)
		if err != nil {
			for _, m := range again {
				report(m, unsentResult(o, m, err))
			}
			return err
		}
		var stale []*Message
		c.SendAll(ctx, func() *Message {
			if c.transactions >= p.maxMessages {
				return nil
			}
			return take()
		}, func(m *Message, r *Result) {
			if r.StaleConn {
				stale = append(stale, m)
				return
			}
			report(m, r)
		})
		again = append(stale, again...)
		p.Put(c)
		if len(again) == 0 && !exhausted {
			if m := take(); m != nil {
				again = append(again, m)
			}
		}
		if len(again) == 0 {
			return nil
		}
	}
}

// unsentResult returns the result of a message for which no connection could be opened.
func unsentResult(o Options, m *Message, err error) *Result {
	r := &Result{Peer: Peer{Host: o.Host, Addr: o.Addr}, Err: err}
	out := localOutcome(Temporary, StageConnect, "4.4.1", sanitize([]byte(err.Error())))
	if de, ok := errors.AsType[*DialError](err); ok {
		out, r.Peer, r.Transcript = de.Outcome, de.Peer, de.Transcript
	}
	r.Outcomes = slices.Repeat([]Outcome{out}, len(m.To))
	return r
}
