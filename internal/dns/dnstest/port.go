// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// lastPort starts at random, so that tests of several packages don't use the same ports at the same
// time. It returns no port twice in one test program.
var lastPort = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(rand.Uint32N(10_000))
	return &n
}()

// FreePort returns a TCP port of ip without a listener, for a program that must be told its port,
// and for connections that are to be refused. Ports that the kernel assigns are unsuitable for
// both: another test may get the same one.
func FreePort(t testing.TB, ip string) int {
	t.Helper()
	var err error
	for range 100 {
		port := 10_000 + int(lastPort.Add(1)%10_000) // Linux assigns ports from 32768
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no port is free at %s: %v", ip, err)
	return 0
}

// ClosedAddr returns a loopback address that refuses connections.
func ClosedAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t, "127.0.0.1"))
}
