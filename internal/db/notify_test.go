// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// muffle passes connections to PostgreSQL on, until it is told to lose those
// that are open.
type muffle struct {
	url    string
	server string

	away atomic.Bool  // whether new connections are refused
	next atomic.Int32 // so many connections are not heard once they have begun

	mu   sync.Mutex
	open map[net.Conn]*atomic.Bool // the server's side, and whether it is no longer heard
}

func startMuffle(t *testing.T, target string) *muffle {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	m := &muffle{server: filepath.Join(q.Get("host"), ".s.PGSQL.5432"), open: map[net.Conn]*atomic.Bool{}}
	dir, err := os.MkdirTemp("", "muffle")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	m.url = u.String()
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
		_ = os.RemoveAll(dir)
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { m.pass(t, client) })
		}
	})
	return m
}

// quiet makes the open connections hear nothing any more, and doesn't tell them.
func (m *muffle) quiet() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, deaf := range m.open {
		deaf.Store(true)
	}
}

// cut breaks the open connections.
func (m *muffle) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for server := range m.open {
		_ = server.Close()
	}
}

func (m *muffle) pass(t *testing.T, client net.Conn) {
	defer client.Close() //nolint:errcheck // the other side goes as well
	if m.away.Load() {
		return
	}
	server, err := net.Dial("unix", m.server)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close() //nolint:errcheck // the other side goes as well
	deaf, soon := &atomic.Bool{}, m.next.Add(-1) >= 0
	m.mu.Lock()
	m.open[server] = deaf
	m.mu.Unlock()
	var asking sync.WaitGroup
	asking.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	for buf := make([]byte, 4096); err == nil; {
		var n int
		if n, err = server.Read(buf); err == nil && !deaf.Load() {
			_, err = client.Write(buf[:n])
			if soon && bytes.HasSuffix(buf[:n], []byte("Z\x00\x00\x00\x05I")) { // ReadyForQuery
				deaf.Store(true)
			}
		}
	}
	m.mu.Lock()
	delete(m.open, server)
	m.mu.Unlock()
	_ = client.Close()
	asking.Wait()
}

// A server that says nothing more when a connection has just begun stops no lane.
func TestSilentServer(t *testing.T) {
	proxy := startMuffle(t, dbtest.Postgres(t))
	d, err := db.Open(t.Context(), db.Options{URL: proxy.url, Lease: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	id := d.NewID()
	proxy.next.Store(1)
	if err := d.Write(t.Context(), id, &db.Job{Apply: add(id)}); err != nil || !stored(t, d, id) {
		t.Error(err)
	}
	if proxy.next.Load() > 0 {
		t.Error("no connection was silent")
	}
}

// What one node tells the others hear; after their connection was lost, or
// has gone dead without a word, they know that they may have missed something.
func TestListen(t *testing.T) {
	target := dbtest.Postgres(t)
	proxy := startMuffle(t, target)
	teller, _ := dbtest.Open(t, target)
	d, err := db.Open(t.Context(), db.Options{URL: proxy.url, Lease: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	heard, missed, ended := make(chan string, 100), make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- d.Listen(ctx, func(payload string) { heard <- payload }, func() { missed <- struct{}{} })
	}()
	tell := func(what string) {
		t.Helper()
		if err := teller.Notify(t.Context(), what); err != nil {
			t.Fatal(err)
		}
		for what != <-heard { // the channel is all tests'
		}
	}
	<-missed
	tell(fmt.Sprint(d.NewID()))
	for _, lose := range []func(){proxy.cut, proxy.quiet} {
		// One that waits in the pool is lost as well.
		if err := d.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		lose()
		<-missed
		tell(fmt.Sprint(d.NewID()))
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
