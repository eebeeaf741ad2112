// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/doctor"
)

// says listens on loopback and sends a text to each client.
func says(t *testing.T, text string) (port int) {
	t.Helper()
	return saysAt(t, net.Listen, text)
}

func saysAt(t *testing.T, listen func(network, address string) (net.Listener, error), text string) (port int) {
	t.Helper()
	l, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, text)
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// nobody returns a port without a listener.
func nobody(t *testing.T) int { return dnstest.FreePort(t, "127.0.0.1") }

func TestListeners(t *testing.T) {
	mail, other := "220 "+host+" ESMTP Mailstead\r\n", "220 old.example.com ESMTP Postfix\r\n"
	for _, c := range []struct {
		running  bool
		listener string
		port     int
		status   doctor.Status
		says     string
	}{
		{false, "smtp", nobody(t), doctor.OK, "is free"},
		{false, "smtp", says(t, other), doctor.Error, "taken by another program: it says “220 old.example.com ESMTP Postfix”"},
		{false, "http", says(t, "HTTP/1.1 200 OK\r\n\r\n"), doctor.Error, "taken by another program"},
		{true, "smtp", says(t, mail), doctor.OK, "greets"},
		{true, "smtp", says(t, "220 old.example.com ESMTP Mailstead\r\n"), doctor.Warning, "greets by another name"},
		{true, "smtp", says(t, other), doctor.Error, "is answered by another program"},
		{true, "smtp", nobody(t), doctor.Error, "nothing answers"},
		{true, "submission", says(t, mail+"250-"+host+"\r\n250-STARTTLS\r\n250 SIZE\r\n"), doctor.OK, "greets"},
		{true, "submission", says(t, mail+"250-"+host+"\r\n250 SIZE\r\n"), doctor.Error, "no STARTTLS"},
		{true, "imap", says(t, "* OK [CAPABILITY IMAP4rev2] "+host+" is ready.\r\n"), doctor.OK, "greets"},
		{true, "imap", says(t, "* BYE\r\n"), doctor.Error, "another program"},
		{true, "imaps", says(t, "* OK in clear\r\n"), doctor.Error, "no greeting"},
		{true, "smtp", says(t, ""), doctor.Error, "gives no greeting"},
	} {
		d := doctor.Listeners{Bind: netip.MustParseAddr("127.0.0.1"), Host: host, Running: c.running, MachineAddrs: doctor.MachineAddrs}
		expect(t, d.Check(doctor.Listener{Name: c.listener, Port: c.port}), c.status, c.says)
	}

	all := doctor.Listeners{Bind: netip.IPv6Unspecified(), Host: host, MachineAddrs: doctor.MachineAddrs}
	expect(t, all.Check(doctor.Listener{Name: "smtp", Port: says(t, other)}), doctor.Error, "taken by another program")
	if !all.IsRunning(t.Context(), doctor.Listener{Name: "smtp", Port: says(t, mail)}) || all.IsRunning(t.Context(), doctor.Listener{Name: "smtp", Port: says(t, other)}) {
		t.Error("who answers is not told apart")
	}
}

// A service that still uses its previous certificate is reported.
func TestListenersCertificate(t *testing.T) {
	authority := certtest.New(t, "known")
	kept, former, expired := pair(t, authority, host, 90*24*time.Hour), pair(t, authority, host, 80*24*time.Hour), pair(t, authority, host, -time.Hour)
	leaf, _, err := kept.LoadChain()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pair   cert.FilePair
		leaf   *x509.Certificate
		status doctor.Status
		says   string
	}{
		{kept, leaf, doctor.OK, "greets"},
		{former, leaf, doctor.Warning, "another certificate"},
		{former, nil, doctor.OK, "greets"},
		{expired, leaf, doctor.Error, "has expired"},
	} {
		shown, err := tls.LoadX509KeyPair(c.pair.CertFile, c.pair.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		port := saysAt(t, func(network, address string) (net.Listener, error) {
			return tls.Listen(network, address, &tls.Config{Certificates: []tls.Certificate{shown}})
		}, "* OK "+host+" is ready.\r\n")
		d := doctor.Listeners{Bind: netip.MustParseAddr("127.0.0.1"), Host: host, Running: true, MachineAddrs: doctor.MachineAddrs, Certificate: c.leaf}
		expect(t, d.Check(doctor.Listener{Name: "imaps", Port: port}), c.status, c.says)
	}
}

// A listener that requires the PROXY protocol is checked with it.
func TestListenersProxied(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	first := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b := make([]byte, 16)
		_, _ = io.ReadFull(c, b)
		first <- string(b)
		_, _ = io.WriteString(c, "220 "+host+" ESMTP Mailstead\r\n")
		_ = c.Close()
	}()
	d := doctor.Listeners{Bind: netip.MustParseAddr("127.0.0.1"), Host: host, Running: true, ProxyNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, MachineAddrs: doctor.MachineAddrs}
	expect(t, d.Check(doctor.Listener{Name: "smtp", Port: l.Addr().(*net.TCPAddr).Port}), doctor.OK, "greets")
	if got := <-first; got != "PROXY TCP4 127.0" {
		t.Errorf("%q", got)
	}
}

func TestBind(t *testing.T) {
	d := doctor.Listeners{Bind: netip.MustParseAddr("192.0.2.7"), Host: host, MachineAddrs: doctor.MachineAddrs}
	high, low := []doctor.Listener{{Name: "smtp", Port: 2525}}, []doctor.Listener{{Name: "smtp", Port: 1}}
	expect(t, d.CheckBind(high, 0), doctor.Error, "no address of this machine")
	d.Bind = netip.IPv6Unspecified()
	expect(t, d.CheckBind(high, 12345), doctor.OK, "::")
	expect(t, d.CheckBind(low, 0), doctor.OK, "::")
	if doctor.Unprivileged() > 1 { // in some containers, every user may bind all ports
		expect(t, d.CheckBind(low, 12345), doctor.Warning, "may not take ports below")
	}
	d.Running = true
	expect(t, d.CheckBind(low, 12345), doctor.OK, "::")
	d.Bind = netip.MustParseAddr("127.0.0.1")
	expect(t, d.CheckBind(high, 0), doctor.Warning, "only this machine reaches 127.0.0.1")
	d.ProxyNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} // a balancer forwards all connections
	expect(t, d.CheckBind(high, 0), doctor.OK, "127.0.0.1")
}
