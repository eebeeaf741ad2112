// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// lastPort begins anywhere, so that tests of several packages at once do not
// walk in step, and gives no port twice in one.
var lastPort = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(rand.Uint32N(10_000))
	return &n
}()

// FreePort is a TCP port of ip at which nobody listens: for a program that must
// be told its port, and for calls that are to be refused. Ports that the kernel
// gives away are no good for either, as the test beside may get the same.
func FreePort(t testing.TB, ip string) int {
	t.Helper()
	var err error
	for range 100 {
		port := 10_000 + int(lastPort.Add(1)%10_000) // Linux gives away 32768 and up
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no port is free at %s: %v", ip, err)
	return 0
}

// ClosedAddr is an address of loopback at which connections are refused.
func ClosedAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t, "127.0.0.1"))
}
