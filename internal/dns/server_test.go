// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

func serve(t *testing.T, lines ...string) (*dns.Server, *dnstest.Records) {
	t.Helper()
	z := dnstest.NewRecords()
	if err := z.Add(lines...); err != nil {
		t.Fatal(err)
	}
	return dnstest.ServeSource(t, dns.ServerConfig{}, z.Source), z
}

func ask(t *testing.T, s *dns.Server, network string, q *wire.Msg) *wire.Msg {
	t.Helper()
	c := &wire.Client{Net: network}
	m, _, err := c.ExchangeContext(t.Context(), q, s.Addr())
	if err != nil {
		t.Fatalf("asking over %s: %v", network, err)
	}
	m.Compress = true // so that Len is the received size
	return m
}

func TestServerAnswers(t *testing.T) {
	s, _ := serve(t, "demo.test. MX 10 mx.demo.test.", "mx.demo.test. A 192.0.2.1", "www.demo.test. CNAME mx.demo.test.")
	tests := []struct {
		name           string
		qtype          uint16
		rcode, answers int
		soa            bool
	}{
		{"demo.test.", wire.TypeMX, wire.RcodeSuccess, 1, false},
		{"DeMo.TeSt.", wire.TypeMX, wire.RcodeSuccess, 1, false},
		{"demo.test.", wire.TypeTXT, wire.RcodeSuccess, 0, true},
		{"www.demo.test.", wire.TypeA, wire.RcodeSuccess, 2, false},
		{"www.demo.test.", wire.TypeCNAME, wire.RcodeSuccess, 1, false},
		{"www.demo.test.", wire.TypeMX, wire.RcodeSuccess, 1, true},
		{"test.", wire.TypeMX, wire.RcodeSuccess, 0, true},
		{"other.test.", wire.TypeMX, wire.RcodeNameError, 0, true},
		{"a.localhost.", wire.TypeA, wire.RcodeNameError, 0, true},
		{"example.com.", wire.TypeMX, wire.RcodeRefused, 0, false},
		{"mytest.", wire.TypeMX, wire.RcodeRefused, 0, false},
		{".", wire.TypeNS, wire.RcodeRefused, 0, false},
		{"demo.test.", wire.TypeAXFR, wire.RcodeRefused, 0, false},
		{"demo.test.", wire.TypeANY, wire.RcodeNotImplemented, 0, false},
	}
	for _, tt := range tests {
		for _, network := range []string{"udp", "tcp"} {
			m := ask(t, s, network, new(wire.Msg).SetQuestion(tt.name, tt.qtype))
			if m.Rcode != tt.rcode || len(m.Answer) != tt.answers || (len(m.Ns) == 1) != tt.soa {
				t.Errorf("%s %s over %s:\n%v", tt.name, wire.TypeToString[tt.qtype], network, m)
			}
			if !m.RecursionAvailable || m.Authoritative != (tt.rcode == wire.RcodeSuccess || tt.rcode == wire.RcodeNameError) {
				t.Errorf("%s: flags RA %v, AA %v", tt.name, m.RecursionAvailable, m.Authoritative)
			}
			if m.Question[0].Name != tt.name {
				t.Errorf("the question %s comes back as %s", tt.name, m.Question[0].Name)
			}
			if m.AuthenticatedData {
				t.Errorf("%s: AD without a validation", tt.name)
			}
		}
	}
}

func TestServerOtherRequests(t *testing.T) {
	s, _ := serve(t, "demo.test. MX 10 mx.demo.test.")
	chaos := new(wire.Msg).SetQuestion("demo.test.", wire.TypeMX)
	chaos.Question[0].Qclass = wire.ClassCHAOS
	if m := ask(t, s, "udp", chaos); m.Rcode != wire.RcodeRefused {
		t.Errorf("class CH: %v", m)
	}
	if m := ask(t, s, "udp", new(wire.Msg).SetNotify("demo.test.")); m.Rcode != wire.RcodeNotImplemented {
		t.Errorf("NOTIFY: %v", m)
	}
	update := new(wire.Msg).SetUpdate("demo.test.")
	if m := ask(t, s, "udp", update); m.Rcode != wire.RcodeNotImplemented {
		t.Errorf("UPDATE: %v", m)
	}
	versioned := new(wire.Msg).SetQuestion("demo.test.", wire.TypeMX).SetEdns0(1232, true)
	versioned.IsEdns0().SetVersion(1)
	if m := ask(t, s, "udp", versioned); m.Rcode != wire.RcodeBadVers {
		t.Errorf("EDNS version 1: %v", m)
	}
}

func TestServerTruncates(t *testing.T) {
	s, z := serve(t)
	for i := range 30 {
		if err := z.Add(fmt.Sprintf(`big.test. TXT "%02d%s"`, i, strings.Repeat("x", 98))); err != nil {
			t.Fatal(err)
		}
	}
	plain := new(wire.Msg).SetQuestion("big.test.", wire.TypeTXT)
	if m := ask(t, s, "udp", plain); !m.Truncated || m.Len() > 512 {
		t.Errorf("without EDNS: truncated %v, %d octets", m.Truncated, m.Len())
	}
	edns := new(wire.Msg).SetQuestion("big.test.", wire.TypeTXT).SetEdns0(2000, true)
	if m := ask(t, s, "udp", edns); !m.Truncated || m.Len() > 2000 || m.Len() < 1000 || m.IsEdns0() == nil || !m.IsEdns0().Do() {
		t.Errorf("with EDNS: truncated %v, %d octets, OPT %v", m.Truncated, m.Len(), m.IsEdns0())
	}
	if m := ask(t, s, "tcp", plain); m.Truncated || len(m.Answer) != 30 {
		t.Errorf("over TCP: truncated %v, %d answers", m.Truncated, len(m.Answer))
	}
}

func TestServerSurvivesGarbage(t *testing.T) {
	s, _ := serve(t, "demo.test. MX 10 mx.demo.test.")
	good, err := new(wire.Msg).SetQuestion("demo.test.", wire.TypeMX).Pack()
	if err != nil {
		t.Fatal(err)
	}
	packets := [][]byte{{}, {0}, []byte("GET / HTTP/1.0\r\n\r\n"), make([]byte, 12), make([]byte, 9000), good[:len(good)-1]}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0xff
		packets = append(packets, bad)
	}
	udp, err := net.Dial("udp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	for _, p := range packets {
		if _, err := udp.Write(p); err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = tcp.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...))
		_ = tcp.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, tcp)
		_ = tcp.Close()
	}
	if m := ask(t, s, "udp", new(wire.Msg).SetQuestion("demo.test.", wire.TypeMX)); len(m.Answer) != 1 {
		t.Errorf("afterwards: %v", m)
	}
	if m := ask(t, s, "tcp", new(wire.Msg).SetQuestion("demo.test.", wire.TypeMX)); len(m.Answer) != 1 {
		t.Errorf("afterwards over TCP: %v", m)
	}
}

// Other programs, such as a Postfix under test, use other resolvers.
func TestServerServesGoResolver(t *testing.T) {
	s, _ := serve(t, "demo.test. MX 10 mx.demo.test.", `demo.test. TXT "v=spf1 " "-all"`)
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.Addr())
	}}
	mx, err := r.LookupMX(t.Context(), "demo.test")
	if err != nil || len(mx) != 1 || mx[0].Host != "mx.demo.test." {
		t.Errorf("MX = %v, %v", mx, err)
	}
	txt, err := r.LookupTXT(t.Context(), "demo.test")
	if err != nil || len(txt) != 1 || txt[0] != "v=spf1 -all" {
		t.Errorf("TXT = %q, %v", txt, err)
	}
	_, err = r.LookupMX(t.Context(), "no.test.")
	var d *net.DNSError
	if !errors.As(err, &d) || !d.IsNotFound {
		t.Errorf("a missing name: %v", err)
	}
}

func TestServerCloseEndsQuestionsInHand(t *testing.T) {
	begun := make(chan struct{})
	s, err := dns.Listen(dns.ServerConfig{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(func(ctx context.Context, _ string) (dns.NameData, error) {
		close(begun)
		<-ctx.Done()
		return dns.NameData{}, ctx.Err()
	})
	conn, err := net.Dial("udp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	q, err := new(wire.Msg).SetQuestion("a.test.", wire.TypeMX).Pack()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(q); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A question that comes before Serve is answered after it.
func TestQuestionBeforeServe(t *testing.T) {
	z := dnstest.NewRecords()
	if err := z.Add("a.test. TXT x"); err != nil {
		t.Fatal(err)
	}
	s, err := dns.Listen(dns.ServerConfig{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := &wire.Conn{Conn: conn}
	if err := c.WriteMsg(new(wire.Msg).SetQuestion("a.test.", wire.TypeTXT)); err != nil {
		t.Fatal(err)
	}
	s.Serve(z.Source)
	if m, err := c.ReadMsg(); err != nil || len(m.Answer) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A server that doesn't serve yet can be closed, too.
func TestCloseBeforeServe(t *testing.T) {
	s, err := dns.Listen(dns.ServerConfig{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err = dns.Listen(dns.ServerConfig{Addr: s.Addr()}); err != nil {
		t.Fatalf("the port is still in use: %v", err)
	}
	_ = s.Close()
}

func TestListenRefuses(t *testing.T) {
	s, _ := serve(t)
	if _, err := dns.Listen(dns.ServerConfig{Addr: s.Addr()}); err == nil {
		t.Error("two servers on one address")
	}
	if _, err := dns.Listen(dns.ServerConfig{Addr: "127.0.0.1:0", Origins: []string{"a b"}}); err == nil {
		t.Error("an origin with a space passed")
	}
}

func TestZone(t *testing.T) {
	z := dnstest.NewRecords()
	for _, line := range []string{"", "MX", "MX ten mx.test.", "A 1.2.3", "$INCLUDE /etc/passwd", "TXT a\nb.test. TXT c", `TXT "open`} {
		if err := z.Set("a.test", line); err == nil {
			t.Errorf("Set(%q) passed", line)
		}
	}
	for _, line := range []string{"", "; nothing", "$INCLUDE /etc/passwd", "$GENERATE 1-9 a$ A 192.0.2.$", " $INCLUDE x"} {
		if err := z.Add(line); err == nil {
			t.Errorf("Add(%q) passed", line)
		}
	}
	if err := z.Set("a b", "TXT x"); err == nil {
		t.Error("a name with a space passed")
	}
	if err := z.Set("A.test", "MX 10 mx", "300 IN TXT x"); err != nil {
		t.Fatal(err)
	}
	if err := z.Add("a.TEST. TXT y"); err != nil {
		t.Fatal(err)
	}
	a, err := z.Source(t.Context(), "a.test.")
	if err != nil || len(a.Records) != 3 || a.Records[0].(*wire.MX).Mx != "mx." {
		t.Errorf("Source = %+v, %v", a, err)
	}
	if err := z.Set("a.test"); err != nil {
		t.Fatal(err)
	}
	if a, _ := z.Source(t.Context(), "a.test."); a.Exists || len(a.Records) != 0 {
		t.Errorf("after removal: %+v", a)
	}
}
