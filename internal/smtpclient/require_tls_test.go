// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
)

// A TLS failure names the policy that requires TLS.
func TestDemand(t *testing.T) {
	cert, roots := certificate(t)
	trusted := &tls.Config{RootCAs: roots}
	secure := options(serve(t, &sink{}, false, func(s *smtp.Server) { s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}} }))
	secure.TLS, secure.Verify, secure.TLSConfig, secure.TLSRequiredBy = TLSRequired, true, trusted, "the policy of x"
	clear := secure
	clear.Addr = serve(t, &sink{}, false, nil)
	other := secure
	other.Host = "other.test"

	c := dial(t, secure)
	if got := c.Peer().TLS; got != "TLS 1.3, TLS_AES_128_GCM_SHA256, verified: PKIX" {
		t.Errorf("facts say %q", got)
	}
	for _, d := range []struct {
		o              Options
		enhanced, text string
	}{
		{clear, "4.7.4", "the policy of x: TLS is required, and the host does not offer STARTTLS"},
		{other, "4.7.5", "the policy of x: TLS handshake: tls: failed to verify certificate: x509: certificate is valid for mx.test, not other.test"},
	} {
		de := dialError(t, d.o)
		if de.Class != NextHost || de.Reply.Enhanced != d.enhanced || de.Reply.Text() != d.text {
			t.Errorf("%+v\n%s", de.Outcome, de.Transcript)
		}
	}
}

// A policy in testing mode causes no failure, and the transcript shows its result.
func TestAudit(t *testing.T) {
	cert, roots := certificate(t)
	secure := options(serve(t, &sink{}, false, func(s *smtp.Server) { s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}} }))
	secure.TestingPolicy, secure.TLSConfig = "testing", &tls.Config{RootCAs: roots}
	clear, other, stranger := secure, secure, secure
	clear.Addr = serve(t, &sink{}, false, nil)
	other.Host = "other.test"
	stranger.TLSConfig = nil
	for _, d := range []struct {
		o    Options
		want string
	}{
		{secure, "* testing: the certificate is good"},
		{clear, "* testing: the host does not offer STARTTLS"},
		{other, "* testing: x509: certificate is valid for mx.test, not other.test"},
		{stranger, "* testing: x509: "},
	} {
		c := dial(t, d.o)
		if !strings.Contains(c.Transcript(), d.want) || c.Peer().Verified {
			t.Errorf("want %q in\n%s", d.want, c.Transcript())
		}
	}
}

// The number of connections to an address is limited, for all users together. Idle ones for another
// host are closed to make space; for those in use the pool waits.
func TestPoolBoundsAnAddress(t *testing.T) {
	s := &sink{}
	p := pool(t, PoolLimits{MaxPerHost: 2, IdleTime: time.Minute})
	o := options(serve(t, s, false, nil))
	get := func(host string, most int) *Conn {
		o := o
		o.Host, o.MaxConns = host, most
		c, err := p.Get(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	p.Put(get("a.test", 0))
	p.Put(get("b.test", 0))
	if a := get("a.test", 0); a.opts.Host != "a.test" || s.sessions != 2 {
		t.Errorf("not reused: %d sessions", s.sessions)
	} else {
		p.Put(a)
	}
	c := get("c.test", 0) // in place of the idle one of b
	p.mu.Lock()
	h := p.hosts[o.Addr]
	p.mu.Unlock()
	if h.conns != 2 || len(h.idle) != 1 || h.idle[0].key.host != "a.test" {
		t.Errorf("%d open, idle %v", h.conns, h.idle)
	}
	got := make(chan *Conn)
	go func() { got <- get("d.test", 1) }() // a has to go, and c to end
	for waiting := 0; waiting == 0; {
		p.mu.Lock()
		waiting = len(h.waiters)
		p.mu.Unlock()
	}
	p.Put(c)
	d := <-got
	if d.opts.Host != "d.test" || h.conns != 1 || len(h.idle) != 0 {
		t.Errorf("%d open, idle %v", h.conns, h.idle)
	}
	p.Put(d)
}
