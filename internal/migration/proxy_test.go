// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// proxy is a proxy in front of a source. It passes on a number of bytes from the source, and then
// holds the rest until it is allowed more; or it cuts each connection after some bytes.
type proxy struct {
	addr string
	cut  func() int64 // bytes after which to cut the next connection; nil: never

	mu       sync.Mutex
	capacity *sync.Cond
	left     int64
	held     chan struct{} // receives when the proxy holds
	conns    map[net.Conn]bool
	cuts     int
}

func startProxy(t testing.TB, to string, left int64, cut func() int64) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), cut: cut, left: left, held: make(chan struct{}, 1), conns: map[net.Conn]bool{}}
	p.capacity = sync.NewCond(&p.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.left = 1 << 60
		for c := range p.conns {
			_ = c.Close()
		}
		p.capacity.Broadcast()
		p.mu.Unlock()
		running.Wait()
	})
	return p
}

func (p *proxy) serve(c net.Conn, to string) {
	defer c.Close() //nolint:errcheck // it goes
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // likewise
	p.mu.Lock()
	p.conns[c], p.conns[up] = true, true
	most := int64(1 << 60)
	if p.cut != nil {
		most = p.cut()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		delete(p.conns, up)
	}()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	}()
	for buf := make([]byte, 4096); most > 0; {
		n, err := up.Read(buf[:min(int64(len(buf)), most)])
		most -= int64(n)
		p.pass(int64(n))
		if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
	p.mu.Lock()
	p.cuts++
	p.mu.Unlock()
}

// pass waits until n more bytes are allowed.
func (p *proxy) pass(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.left < n {
		select {
		case p.held <- struct{}{}:
		default:
		}
		p.capacity.Wait()
	}
	p.left -= n
}

// allow lets n more bytes pass.
func (p *proxy) allow(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.held:
	default:
	}
	p.left += n
	p.capacity.Broadcast()
}

// somewhere returns a function that picks a random number of bytes.
func somewhere(least, most int64) func() int64 {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	return func() int64 { return least + r.Int64N(most-least) }
}
