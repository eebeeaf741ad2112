// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	wire "github.com/miekg/dns"
)

// Fault says what happens to one question and its answer.
type Fault struct {
	Drop  bool            // no answer is sent
	Delay <-chan struct{} // the answer waits until this is closed
	// Forge first sends forged and broken answers: with a wrong id, a wrong question, from a wrong
	// port, cut off, and garbage.
	Forge bool
}

// Proxy is a network path to a DNS server that loses, delays and forges UDP packets on demand. It
// passes TCP on unchanged.
type Proxy struct {
	Addr string

	t        testing.TB
	server   string
	faultFor func(n int, q *wire.Msg) Fault
	udp      net.PacketConn
	tcp      net.Listener
	done     chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex
	queries int
	conns   map[net.Conn]bool
}

// StartProxy opens a path to a server until the test ends. It calls fate for each question over
// UDP, with its number from 1.
func StartProxy(t testing.TB, server string, fate func(n int, q *wire.Msg) Fault) *Proxy {
	t.Helper()
	p := &Proxy{t: t, server: server, faultFor: fate, done: make(chan struct{}), conns: make(map[net.Conn]bool)}
	p.udp, p.tcp = listenSamePort(t)
	p.Addr = p.udp.LocalAddr().String()
	p.wg.Go(p.serveUDP)
	p.wg.Go(p.serveTCP)
	t.Cleanup(func() {
		close(p.done)
		_, _ = p.udp.Close(), p.tcp.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// QueryCount returns how many questions have been received over UDP.
func (p *Proxy) QueryCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queries
}

func (p *Proxy) serveUDP() {
	buf := make([]byte, 4096)
	for {
		n, from, err := p.udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		q := new(wire.Msg)
		if err != nil || q.Unpack(buf[:n]) != nil {
			continue
		}
		p.mu.Lock()
		p.queries++
		count := p.queries
		p.mu.Unlock()
		if fate := p.faultFor(count, q); !fate.Drop {
			p.wg.Go(func() { p.forward(q, from, fate) })
		}
	}
}

func (p *Proxy) forward(q *wire.Msg, from net.Addr, fate Fault) {
	if fate.Forge {
		p.sendForged(q, from)
	}
	if fate.Delay != nil {
		select {
		case <-fate.Delay:
		case <-p.done:
			return
		}
	}
	a, _, err := new(wire.Client).Exchange(q, p.server)
	if err != nil {
		return // the server does not answer either
	}
	if raw, err := a.Pack(); err == nil {
		_, _ = p.udp.WriteTo(raw, from) // the client may be gone
	}
}

// sendForged sends the packets of a forger or a broken server.
func (p *Proxy) sendForged(q *wire.Msg, from net.Addr) {
	forged := func(change func(m *wire.Msg)) []byte {
		m := new(wire.Msg).SetReply(q)
		m.Rcode = wire.RcodeNameError
		change(m)
		raw, err := m.Pack()
		if err != nil {
			p.t.Errorf("a forged answer: %v", err)
		}
		return raw
	}
	plausible := forged(func(*wire.Msg) {})
	for _, raw := range [][]byte{
		forged(func(m *wire.Msg) { m.Id++ }),
		forged(func(m *wire.Msg) { m.Question[0].Name = "forged.example." }),
		forged(func(m *wire.Msg) { m.Question[0].Qtype = wire.TypeNULL }),
		forged(func(m *wire.Msg) { m.Response = false }),
		forged(func(m *wire.Msg) { m.Question = nil }),
		plausible[:11], []byte("garbage that is longer than a header"), nil,
	} {
		_, _ = p.udp.WriteTo(raw, from)
	}
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		p.t.Errorf("opening another port: %v", err)
		return
	}
	_, _ = other.WriteTo(plausible, from)
	_ = other.Close()
}

func (p *Proxy) serveTCP() {
	for {
		c, err := p.tcp.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[up] = true, true
		p.mu.Unlock()
		for _, ends := range [][2]net.Conn{{c, up}, {up, c}} {
			p.wg.Go(func() {
				_, _ = io.Copy(ends[0], ends[1])
				_, _ = c.Close(), up.Close()
				p.mu.Lock()
				delete(p.conns, ends[0])
				p.mu.Unlock()
			})
		}
	}
}
