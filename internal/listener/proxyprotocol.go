// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// proxyHeaderTimeout is how long a load balancer may take to send the PROXY header.
const proxyHeaderTimeout = 10 * time.Second

// WithPROXY returns a listener that takes the client's address from the PROXY header on
// connections from trusted load balancers. It closes connections from them without a header, as
// the client is unknown.
func WithPROXY(l net.Listener, trusted Proxies) net.Listener {
	if len(trusted) == 0 {
		return l
	}
	return &proxyListener{Listener: l, trusted: trusted, accepted: make(chan acceptResult), closed: make(chan struct{})}
}

// proxyListener reads PROXY headers outside Accept, so that a slow load balancer does not delay
// other connections.
type proxyListener struct {
	net.Listener
	trusted  Proxies
	start    sync.Once
	accepted chan acceptResult
	closed   chan struct{}
}

type acceptResult struct {
	net.Conn
	err error
}

// Accept implements net.Listener.
func (p *proxyListener) Accept() (net.Conn, error) {
	p.start.Do(func() { go p.acceptLoop() })
	select {
	case a := <-p.accepted:
		return a.Conn, a.err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *proxyListener) acceptLoop() {
	for {
		nc, err := p.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			close(p.closed)
			return
		case err != nil:
			p.enqueue(acceptResult{err: err})
		case p.isTrusted(nc.RemoteAddr()):
			go p.readHeader(nc)
		default:
			p.enqueue(acceptResult{Conn: nc})
		}
	}
}

// enqueue waits until Accept takes the result.
func (p *proxyListener) enqueue(a acceptResult) {
	select {
	case p.accepted <- a:
	case <-p.closed:
		if a.Conn != nil {
			_ = a.Close()
		}
	}
}

// readHeader reads the PROXY header of a connection.
func (p *proxyListener) readHeader(nc net.Conn) {
	c := proxyproto.NewConn(nc, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(proxyHeaderTimeout))
	if c.ProxyHeader() == nil {
		_ = nc.Close()
		return
	}
	// Without an IP address the client can't be rate-limited.
	if _, ok := c.RemoteAddr().(*net.TCPAddr); !ok {
		_ = nc.Close()
		return
	}
	p.enqueue(acceptResult{Conn: c})
}

func (p *proxyListener) isTrusted(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && p.trusted.Contain(tcp.AddrPort().Addr())
}
