// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// TestIdleMemory measures the server's memory for an idle session, with and without TLS. The
// clients are in the same process, but hold only their socket.
func TestIdleMemory(t *testing.T) {
	h := open(t, dbtest.SQLite(t), func(*imapd.Options) {})
	h.fill("INBOX", 100)
	h.login()
	clear := h.serve(h.server.ServeTrusted)
	n := servertest.SoakSize(200, 5000)
	secured := h.idleCost(n, h.secure, func(nc net.Conn) net.Conn { return tlsClient(nc, h) })
	bare := h.idleCost(n, clear, func(nc net.Conn) net.Conn { return nc })
	t.Logf("%d sessions that idle: %.1f KiB each, %.1f KiB with TLS", n, bare/1024, secured/1024)
	if n == 5000 && bare > 30<<10 {
		t.Errorf("a session that idles without TLS costs %.1f KiB", bare/1024)
	}
}

// idleCost returns the bytes of heap and stacks for each of n sessions.
func (h *fixture) idleCost(n int, addr string, over func(net.Conn) net.Conn) float64 {
	h.Helper()
	before := inUse()
	raw := make([]net.Conn, n)
	for i := range raw {
		raw[i] = h.idleSocket(addr, "INBOX", over)
	}
	cost := float64(inUse()-before) / float64(n)
	for _, nc := range raw {
		_ = nc.Close()
	}
	return cost
}

func inUse() uint64 {
	for range 3 { // stacks shrink by half each time
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// idleSocket brings a connection into IDLE in a folder and returns only its socket.
func (h *fixture) idleSocket(addr, name string, over func(net.Conn) net.Conn) net.Conn {
	raw, err := net.Dial("tcp", addr)
	h.must(err)
	nc := over(raw)
	_, err = io.WriteString(nc, "a LOGIN "+alice+" "+password+"\r\nb SELECT "+name+"\r\nc IDLE\r\n")
	h.must(err)
	var got []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(got, []byte("\r\n+ ")) {
		n, err := nc.Read(buf)
		h.must(err)
		got = append(got, buf[:n]...)
	}
	return raw
}
