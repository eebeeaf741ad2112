// SPDX-License-Identifier: Apache-2.0

package dbtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards connections to PostgreSQL, and simulates failures of networks and servers.
type Proxy struct {
	// URL is the database's URL through the proxy.
	URL string

	Down        atomic.Bool  // whether to refuse new connections
	Silent      atomic.Bool  // whether to drop all answers of the server
	SilenceNext atomic.Int32 // number of connections that go silent once ready
	Refused     atomic.Int32 // number of refused connections
	Statements  atomic.Int64 // number of executed statements

	server string
	mu     sync.Mutex
	conns  map[net.Conn]*atomic.Bool // connection to the server, and whether it is silent
}

// StartProxy starts a proxy for the database of target, for the duration of the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	p := &Proxy{server: filepath.Join(q.Get("host"), ".s.PGSQL.5432"), conns: map[net.Conn]*atomic.Bool{}}
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	p.URL = u.String()
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		all.Wait()
		_ = os.RemoveAll(dir)
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.forward(t, client) })
		}
	})
	return p
}

// SilenceOpen drops all further answers over the open connections.
func (p *Proxy) SilenceOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, silent := range p.conns {
		silent.Store(true)
	}
}

// Cut closes the open connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for server := range p.conns {
		_ = server.Close()
	}
}

func (p *Proxy) forward(t testing.TB, client net.Conn) {
	defer client.Close() //nolint:errcheck // the other side goes as well
	if p.Down.Load() {
		p.Refused.Add(1)
		return
	}
	server, err := net.Dial("unix", p.server)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close() //nolint:errcheck // the other side goes as well
	silent, soon := &atomic.Bool{}, p.SilenceNext.Add(-1) >= 0
	p.mu.Lock()
	p.conns[server] = silent
	p.mu.Unlock()
	var asking sync.WaitGroup
	asking.Go(func() {
		p.forwardStatements(server, client)
		_ = server.Close()
	})
	for buf := make([]byte, 4096); err == nil; {
		var n int
		if n, err = server.Read(buf); err == nil && !silent.Load() && !p.Silent.Load() {
			_, err = client.Write(buf[:n])
			if soon && bytes.HasSuffix(buf[:n], []byte("Z\x00\x00\x00\x05I")) { // ReadyForQuery
				silent.Store(true)
			}
		}
	}
	p.mu.Lock()
	delete(p.conns, server)
	p.mu.Unlock()
	_ = client.Close()
	asking.Wait()
}

// forwardStatements forwards the client's messages and counts those that execute a statement. The
// first message has no type.
func (p *Proxy) forwardStatements(server io.Writer, client io.Reader) {
	r := bufio.NewReader(client)
	for kindSize := 0; ; kindSize = 1 {
		head, err := r.Peek(kindSize + 4)
		if err != nil {
			return
		}
		if kind := head[0]; kindSize == 1 && (kind == 'E' || kind == 'Q') {
			p.Statements.Add(1)
		}
		size := int64(binary.BigEndian.Uint32(head[kindSize:]))
		if _, err := io.CopyN(server, r, int64(kindSize)+size); err != nil {
			return
		}
	}
}
