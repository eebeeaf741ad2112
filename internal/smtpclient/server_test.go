// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// host is a server whose replies the test controls.
type host struct {
	t  *testing.T
	nc net.Conn
	br *bufio.Reader
	n  int // number of the connection, from 1
}

// script listens on loopback and runs fn for each connection.
func script(t *testing.T, fn func(h *host)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for n := 1; ; n++ {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = nc.Close() }()
				fn(&host{t: t, nc: nc, br: bufio.NewReader(nc), n: n})
			})
		}
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func (h *host) say(lines ...string) {
	_, _ = io.WriteString(h.nc, strings.Join(lines, "\r\n")+"\r\n")
}

// hear reads a line, which must begin with want.
func (h *host) hear(want string) string {
	line, err := h.br.ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	if err != nil || !strings.HasPrefix(line, want) {
		h.t.Errorf("heard %q, %v; want %q", line, err, want)
	}
	return line
}

// greet runs the session up to MAIL.
func (h *host) greet(extensions ...string) {
	h.say("220 mx.test ready")
	h.hear("EHLO client.test")
	h.offer(extensions...)
}

func (h *host) offer(extensions ...string) {
	lines := append([]string{"mx.test"}, extensions...)
	for i := range lines {
		if i < len(lines)-1 {
			lines[i] = "250-" + lines[i]
		} else {
			lines[i] = "250 " + lines[i]
		}
	}
	h.say(lines...)
}

// message reads up to the final dot and returns the message before it.
func (h *host) message() string {
	var b strings.Builder
	for {
		line, err := h.br.ReadString('\n')
		if err != nil {
			h.t.Errorf("reading the message: %v", err)
			return b.String()
		}
		if line == ".\r\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

// follow answers each of the given lines with its reply until the client closes.
func (h *host) follow(replies map[string]string) {
	for {
		line, err := h.br.ReadString('\n')
		if err != nil {
			return
		}
		if r, ok := replies[strings.TrimRight(line, "\r\n")]; ok {
			h.say(r)
		}
	}
}

// wait reads until QUIT, and replies to it, or until the client closes, and returns what it read.
func (h *host) wait() string {
	var b strings.Builder
	for {
		line, err := h.br.ReadString('\n')
		b.WriteString(line)
		if line == "QUIT\r\n" {
			h.say("221 bye")
		}
		if err != nil {
			return b.String()
		}
	}
}

func options(addr netip.AddrPort) Options {
	return Options{Addr: addr, Host: "mx.test", LocalName: "client.test"}
}

func dial(t *testing.T, o Options) *Conn {
	t.Helper()
	c, err := Dial(context.Background(), o)
	if err != nil {
		t.Fatalf("dialling: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func message(to ...string) *Message {
	m := &Message{From: "a@client.test", Body: strings.NewReader("Subject: hi\r\n\r\nhello\r\n")}
	for _, addr := range to {
		m.To = append(m.To, Rcpt{Addr: addr})
	}
	return m
}

func classes(r *Result) string {
	var words []string
	for _, o := range r.Outcomes {
		words = append(words, o.Class.String())
	}
	return strings.Join(words, ",")
}

// sink is a go-smtp server that accepts mail for everybody except nobody@.
type sink struct {
	mu       sync.Mutex
	sessions int
	got      []received
	user     string
	password string
}

type received struct {
	from string
	to   []string
	data string
	opts smtp.MailOptions
	rcpt []smtp.RcptOptions
}

type sinkSession struct {
	s   *sink
	cur received
}

func (s *sink) NewSession(*smtp.Conn) (smtp.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return &sinkSession{s: s}, nil
}

func (s *sinkSession) Reset()        { s.cur = received{} }
func (s *sinkSession) Logout() error { return nil }
func (s *sinkSession) Mail(from string, o *smtp.MailOptions) error {
	s.cur.from, s.cur.opts = from, *o
	return nil
}
func (s *sinkSession) Rcpt(to string, o *smtp.RcptOptions) error {
	if strings.HasPrefix(to, "nobody@") {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	}
	s.cur.to = append(s.cur.to, to)
	s.cur.rcpt = append(s.cur.rcpt, *o)
	return nil
}
func (s *sinkSession) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.cur.data = string(b)
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.got = append(s.s.got, s.cur)
	return nil
}
func (s *sinkSession) AuthMechanisms() []string { return []string{sasl.Plain} }
func (s *sinkSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.s.user || password != s.s.password {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

// serve starts a sink; set adjusts the server before it starts.
func serve(t testing.TB, s *sink, implicit bool, set func(*smtp.Server)) netip.AddrPort {
	t.Helper()
	srv := smtp.NewServer(s)
	srv.Domain = "mx.test"
	srv.EnableSMTPUTF8, srv.EnableDSN = true, true
	if set != nil {
		set(srv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	if implicit {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done }) //nolint:errcheck // it was closed
	return addr
}

// certificate returns a self-signed certificate for mx.test.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mx.test"}, DNSNames: []string{"mx.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
