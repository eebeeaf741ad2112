// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"net"
	"sync"
	"testing"

	wire "github.com/miekg/dns"
)

// Serve runs a DNS server over UDP and TCP until the test ends, and returns its address. The
// function fill adds the answers. Use it for cases that a Zone can't express, such as different
// answers by type.
func Serve(t testing.TB, fill func(m *wire.Msg, q wire.Question)) string {
	t.Helper()
	handler := wire.HandlerFunc(func(w wire.ResponseWriter, req *wire.Msg) {
		m := new(wire.Msg).SetReply(req)
		m.RecursionAvailable = true
		fill(m, req.Question[0])
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			m.Truncate(1232)
		}
		_ = w.WriteMsg(m)
	})
	return listen(t, handler)
}

// listen serves over UDP and TCP on one free port.
func listen(t testing.TB, handler wire.Handler) string {
	t.Helper()
	packets, listener := listenSamePort(t)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	for _, s := range []*wire.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		serving.Go(func() { _ = s.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return packets.LocalAddr().String()
}

// listenSamePort opens one free port for UDP and TCP.
func listenSamePort(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		_ = packets.Close()
		return listenSamePort(t) // the port is in use for TCP
	}
	return packets, listener
}
