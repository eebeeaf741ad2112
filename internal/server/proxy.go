// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// proxyTime is how long a balancer may take to say who its client is.
const proxyTime = 10 * time.Second

// behind returns a listener whose connections from trusted addresses are those
// of the clients that the PROXY protocol names. Such a connection without it
// is closed, since whose it is would be unknown.
func behind(l net.Listener, trusted []netip.Prefix) net.Listener {
	if len(trusted) == 0 {
		return l
	}
	return &proxied{Listener: l, trusted: trusted, came: make(chan accepted), closed: make(chan struct{})}
}

// proxied reads what balancers say beside Accept, so that one that is slow keeps
// nobody else waiting.
type proxied struct {
	net.Listener
	trusted []netip.Prefix
	begin   sync.Once
	came    chan accepted
	closed  chan struct{}
}

type accepted struct {
	net.Conn
	err error
}

// Accept is that of net.Listener.
func (p *proxied) Accept() (net.Conn, error) {
	p.begin.Do(func() { go p.run() })
	select {
	case a := <-p.came:
		return a.Conn, a.err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *proxied) run() {
	for {
		nc, err := p.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			close(p.closed)
			return
		case err != nil:
			p.hand(accepted{err: err})
		case p.trusts(nc.RemoteAddr()):
			go p.read(nc)
		default:
			p.hand(accepted{Conn: nc})
		}
	}
}

// hand waits for Accept to take what came.
func (p *proxied) hand(a accepted) {
	select {
	case p.came <- a:
	case <-p.closed:
		if a.Conn != nil {
			_ = a.Close()
		}
	}
}

// read takes in what the balancer says of a connection.
func (p *proxied) read(nc net.Conn) {
	c := proxyproto.NewConn(nc, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(proxyTime))
	if c.ProxyHeader() == nil {
		_ = nc.Close()
		return
	}
	// Of a client without an address on the Internet nothing could be limited.
	if _, ok := c.RemoteAddr().(*net.TCPAddr); !ok {
		_ = nc.Close()
		return
	}
	p.hand(accepted{Conn: c})
}

func (p *proxied) trusts(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && slices.ContainsFunc(p.trusted, func(n netip.Prefix) bool { return n.Contains(tcp.AddrPort().Addr().Unmap().WithZone("")) })
}
