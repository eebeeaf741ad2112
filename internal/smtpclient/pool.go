// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ErrPoolClosed is returned by a Pool that was closed.
var ErrPoolClosed = errors.New("smtpclient: the pool is closed")

// Pool keeps connections for the next messages to the same host under the
// same policy. Its methods may be called by many goroutines.
type Pool struct {
	idleTime    time.Duration
	maxPerHost  int
	maxMessages int
	maxIdle     int
	tlsSessions tls.ClientSessionCache

	mu      sync.Mutex
	hosts   map[netip.AddrPort]*poolHost
	total   int // connections that exist, are being dialled, or say goodbye
	idle    int
	closed  bool
	done    chan struct{} // closed by Close
	drained chan struct{} // closed when, after that, total is 0
}

// PoolLimits bound a Pool. Zero fields mean the defaults given beside them.
type PoolLimits struct {
	IdleTime    time.Duration // how long a connection waits for a next message; 5 s
	MaxPerHost  int           // connections to one address at a time, those in use and idle ones; 10
	MaxMessages int           // messages over one connection; 1,000
	MaxIdle     int           // idle connections to all hosts together; 500
}

// poolKey is what two connections must share to stand in for each other.
type poolKey struct {
	addr                    netip.AddrPort
	localIP                 netip.Addr
	host, localName, policy string
	user, password          string
	mode                    TLSMode
	verify                  bool
}

// poolHost is one address with its connections, whatever they are for.
type poolHost struct {
	conns   int // connections there are, that are being dialled, or say goodbye
	closing int // of these, those that say goodbye
	idle    []*idleConn
	waiters []*waiter
}

// waiter is a Get that waits for a connection, or for leave to dial: nil.
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
	count := func(n, fallback int) int {
		if n > 0 {
			return n
		}
		return fallback
	}
	return &Pool{
		idleTime:    durationOr(l.IdleTime, 5*time.Second),
		maxPerHost:  count(l.MaxPerHost, 10),
		maxMessages: count(l.MaxMessages, 1000),
		maxIdle:     count(l.MaxIdle, 500),
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

// Get returns an idle connection, or dials. With MaxPerHost connections in
// use it waits for one. Errors: *DialError, ErrPoolClosed, the context's.
// Every connection goes back with Put.
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
		last.timer.Stop() // should it have fired, expire finds the connection gone
		return last.c, nil
	}
	h.waiters = append(h.waiters, w)
	p.grantDials(h)
	for len(h.idle) > 0 && slices.Contains(h.waiters, w) && h.conns-h.closing >= w.maxConns { // those serve others only
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

// takeIdle returns the idle connection for k that was used last, or nil.
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

// grantDials gives leave to dial to those who wait, in their order, while there is
// room. The pool is locked.
func (p *Pool) grantDials(h *poolHost) {
	for len(h.waiters) > 0 && h.conns < h.waiters[0].maxConns && !p.closed {
		w := h.waiters[0]
		h.waiters = h.waiters[1:]
		h.conns++
		p.total++
		w.ready <- nil
	}
}

// cancelWait takes a waiting Get out of the queue, and passes on what it was
// given in the meantime.
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
	if o.TLS != Never {
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

// Put gives a connection back, whatever its state.
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

// expire closes a connection that nobody wanted for too long.
func (p *Pool) expire(a netip.AddrPort, one *idleConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.hosts[a]; h != nil && slices.Contains(h.idle, one) {
		p.closeIdle(a, h, one)
	}
}

// closeIdle ends an idle connection. The pool is locked.
func (p *Pool) closeIdle(a netip.AddrPort, h *poolHost, one *idleConn) {
	one.timer.Stop()
	i := slices.Index(h.idle, one)
	h.idle = slices.Delete(h.idle, i, i+1)
	p.idle--
	p.closeAsync(a, h, one.c)
}

// closeAsync closes a connection behind the caller's back, for QUIT may take its
// time; then its place is free. The pool is locked.
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

// releaseSlot gives a connection's place to the first of those who wait. The pool
// is locked.
func (p *Pool) releaseSlot(a netip.AddrPort, h *poolHost) {
	h.conns--
	p.grantDials(h)
	p.removeIfUnused(a, h)
}

// removeIfUnused forgets an address with nothing left.
func (p *Pool) removeIfUnused(a netip.AddrPort, h *poolHost) {
	if h.conns == 0 && len(h.waiters) == 0 && p.hosts[a] == h {
		delete(p.hosts, a)
	}
}

// decrementTotal counts a connection off. The pool is locked.
func (p *Pool) decrementTotal() {
	p.total--
	if p.closed && p.total == 0 {
		close(p.drained)
	}
}

// Close ends the idle connections with QUIT and waits until those in use have
// been put back and closed, or until ctx ends, whose error it returns. It is
// called once.
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

// SendAll sends messages as next hands them out until it returns nil, over as
// many connections, one after the other, as it takes: one that the host has
// closed in the meantime, or that has served its number, is replaced, and
// what was not sent over it goes out over the next.
//
// An error means that no connection could be had for the messages that next
// still holds. Every message that was taken is reported once; one that met a
// dead connection and then found none to replace it is reported with the
// outcome of that dialling.
func (p *Pool) SendAll(ctx context.Context, o Options, next func() *Message, report func(*Message, *Result)) error {
	var again []*Message // taken, not sent, to be sent first
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

// unsentResult is the result of a message that found no connection.
func unsentResult(o Options, m *Message, err error) *Result {
	r := &Result{Outcomes: make([]Outcome, len(m.To)), Peer: Peer{Host: o.Host, Addr: o.Addr}, Err: err}
	out := localOutcome(Temporary, StageConnect, "4.4.1", sanitize([]byte(err.Error())))
	var de *DialError
	if errors.As(err, &de) {
		out, r.Peer, r.Transcript = de.Outcome, de.Peer, de.Transcript
	}
	for i := range r.Outcomes {
		r.Outcomes[i] = out
	}
	return r
}
