// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// balancer connects to a listener from an address of loopback and sends first.
func balancer(t *testing.T, s *servertest.Server, listener, from, first string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.DialContext(t.Context(), "tcp", s.Addr(listener))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if _, err := io.WriteString(nc, first); err != nil {
		t.Fatal(err)
	}
	return nc
}

// Every listener takes the client's address from trusted load balancers, and from no other host.
func TestPROXY(t *testing.T) {
	const trusted = "127.0.0.3"
	s := servertest.Start(t, func(c *server.Config) { c.ProxyFrom = []string{trusted + "/32"} })
	client := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 4711}
	second, err := proxyproto.HeaderProxyFromAddrs(2, client, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 25}).Format()
	if err != nil {
		t.Fatal(err)
	}
	first := "PROXY TCP4 192.0.2.9 127.0.0.1 4711 25\r\n"
	for n, header := range []string{first, string(second)} {
		nc := balancer(t, s, "smtp", trusted, header)
		r := bufio.NewReader(nc)
		for _, line := range []string{"", "HELO a.example", "MAIL FROM:<a@b.example>", "RCPT TO:<alice@demo.test>", "DATA", "From: a@b.example\r\nSubject: x\r\n\r\nx\r\n."} {
			if line != "" {
				if _, err := io.WriteString(nc, line+"\r\n"); err != nil {
					t.Fatal(err)
				}
			}
			if said, err := r.ReadString('\n'); err != nil || said[0] != '2' && said[0] != '3' {
				t.Fatalf("%q: %q, %v", line, said, err)
			}
		}
		if text := arrived(t, s, 0, uint32(n+1)); !strings.Contains(text, "192.0.2.9") || strings.Contains(text, trusted) {
			t.Errorf("version %d: it came\n%s", n+1, text)
		}
	}
	for listener, want := range map[string]string{"submission": "220 ", "imap": "* OK ", "http": "HTTP/1."} {
		nc := balancer(t, s, listener, trusted, first+map[bool]string{true: "GET / HTTP/1.0\r\n\r\n"}[listener == "http"])
		if said, err := bufio.NewReader(nc).ReadString('\n'); err != nil || !strings.HasPrefix(said, want) {
			t.Errorf("%s: %q, %v", listener, said, err)
		}
	}
	for _, listener := range []string{"submissions", "imaps", "https"} {
		if err := tls.Client(balancer(t, s, listener, trusted, first), s.TLS()).HandshakeContext(t.Context()); err != nil {
			t.Errorf("%s: %v", listener, err)
		}
	}
	for _, bad := range []string{"EHLO a.example\r\n", "PROXY TCP4 x y 1 2\r\n", "PROXY " + strings.Repeat("x", 1000)} {
		if text, _ := io.ReadAll(balancer(t, s, "smtp", trusted, bad)); len(text) > 0 {
			t.Errorf("%.20q: %q", bad, text)
		}
	}
	said := bufio.NewReader(balancer(t, s, "smtp", "127.0.0.4", first+"QUIT\r\n"))
	var all string
	for range 2 {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprint(line[:4])
	}
	if all != "220 500 " {
		t.Errorf("one that nobody trusts hears %q", all)
	}
}
