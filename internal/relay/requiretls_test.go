// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

func strict(m *queue.OutboundMessage) { m.RequireTLS = true }
func lax(m *queue.OutboundMessage)    { m.OptionalTLS = true }

// A message that requires TLS goes only to a host that proves its identity and announces
// REQUIRETLS. All hosts are tried before it bounces.
func TestRequireTLS(t *testing.T) {
	const willing, unwilling, stranger, clear, busy, dead = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"
	cases := []struct {
		name  string
		hosts []string
		want  string
		story string
	}{
		{"willing", []string{willing}, "delivered 2.0.0", "* TLS is required: REQUIRETLS"},
		{"unwilling", []string{unwilling}, "bounced 5.7.30", "does not offer"},
		{"stranger", []string{stranger}, "bounced 5.7.10", "REQUIRETLS: TLS handshake"},
		{"clear", []string{clear}, "bounced 5.7.10", "REQUIRETLS: TLS is required"},
		{"busy", []string{busy}, "deferred 4.7.0", "454 4.7.0 later"},
		{"dead", []string{dead}, "deferred 4.4.1", "refused"},
		{"third", []string{clear, unwilling, willing}, "delivered 2.0.0", "does not offer"},
		{"all", []string{clear, unwilling, stranger}, "bounced 5.7.10", "does not offer"},
		{"perhaps-later", []string{unwilling, dead}, "deferred 4.4.1", "does not offer"},
	}
	var names []string
	for _, c := range cases {
		for i := range c.hosts {
			names = append(names, fmt.Sprintf("mx%d.%s.test", i, c.name))
		}
	}
	ca := certtest.New(t, "root")
	good, other := ca.ServerConfig(names...), certificate(t, "nobody.test")
	promise := []string{"PIPELINING", "ENHANCEDSTATUSCODES", "REQUIRETLS"}
	l := bind(t, willing, unwilling, stranger, clear, busy, dead)
	sinks := []*sink{{tls: good, ext: promise}, {tls: good}, {tls: other, ext: promise}, {ext: promise},
		{tls: good, ext: promise, answer: refuse("STARTTLS", "454 4.7.0 later")}}
	for i, s := range sinks {
		start(t, l[i], s)
	}
	_ = l[5].Close()
	h := newFixture(t, uint16(l[0].Addr().(*net.TCPAddr).Port), nil)
	h.router.Roots = ca.Pool()
	for _, c := range cases {
		for i, addr := range c.hosts {
			h.zone.Add(fmt.Sprintf("%s.test. MX %d mx%d.%s.test.", c.name, i, i, c.name), fmt.Sprintf("mx%d.%s.test. A %s", i, c.name, addr))
		}
	}
	h.run()
	for _, c := range cases {
		a := h.attempt(h.accept(h.newMail(strict), "bob@"+c.name+".test"))
		if got := strings.TrimSpace(string(a.Outcome) + " " + a.Enhanced); got != c.want || !strings.Contains(a.Transcript, c.story) ||
			(a.Outcome == queue.Delivered) != strings.HasSuffix(a.TLS, "verified: PKIX") && a.Enhanced != "5.7.30" {
			t.Errorf("%s: got %s, TLS %q\n%s", c.name, got, a.TLS, a.Transcript)
		}
	}
	for i, s := range sinks {
		for _, m := range s.mail() {
			if i != 0 || m.from != "FROM:<a@from.test> REQUIRETLS" || !m.tls {
				t.Errorf("sink %d got %+v", i, m)
			}
		}
	}
	if n := len(sinks[0].mail()); n != 2 {
		t.Errorf("%d messages arrived", n)
	}
}

// A connection that breaks before TLS says nothing about the host's abilities: the message is
// deferred.
func TestRequireTLSOverABadLine(t *testing.T) {
	ca := certtest.New(t, "root")
	cut := ca.ServerConfig("mx.handshake.test")
	cut.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return nil, hello.Conn.Close() }
	l := bind(t, "127.0.0.1", "127.0.0.2")
	promise := []string{"REQUIRETLS"}
	start(t, l[0], &sink{tls: ca.ServerConfig("mx.command.test"), ext: promise, answer: refuse("STARTTLS", drop)})
	start(t, l[1], &sink{tls: cut, ext: promise})
	h := newFixture(t, uint16(l[0].Addr().(*net.TCPAddr).Port), nil,
		"command.test. MX 10 mx.command.test.", "mx.command.test. A 127.0.0.1",
		"handshake.test. MX 10 mx.handshake.test.", "mx.handshake.test. A 127.0.0.2")
	h.router.Roots = ca.Pool()
	h.run()
	for to, want := range map[string]string{"bob@command.test": "deferred 4.7.4", "bob@handshake.test": "deferred 4.7.5"} {
		if a := h.attempt(h.accept(h.newMail(strict), to)); string(a.Outcome)+" "+a.Enhanced != want {
			t.Errorf("%s: %s %s, want %s\n%s", to, a.Outcome, a.Enhanced, want, a.Transcript)
		}
	}
}

// A message that requires TLS delays no other message of its destination, nor do they delay it.
func TestRequireTLSAmongOthers(t *testing.T) {
	s := &sink{tls: certificate(t, "nobody.test")}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	var ids []db.ID
	for i := range 30 {
		edit := strict
		if i%3 > 0 {
			edit = nil
		}
		ids = append(ids, h.accept(h.newMail(edit), "bob@d.test"))
	}
	h.run()
	for i, id := range ids {
		want := map[bool]string{true: "bounced 5.7.10", false: "delivered 2.0.0"}[i%3 == 0]
		if got := h.states(id); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// Only "TLS-Required: No" overrides the recipient domain's policy.
func TestOptionalTLS(t *testing.T) {
	s := &sink{tls: certificate(t, "nobody.test")}
	listen(t, s)
	port := s.addr.Port()
	h := newFixture(t, port, nil,
		"pinned.test. MX 10 mx.pinned.test.", "mx.pinned.test. A 127.0.0.1",
		fmt.Sprintf("_%d._tcp.mx.pinned.test. TLSA 3 1 1 %s", port, strings.Repeat("00", 32)),
		"broken.test. MX 10 mx.broken.test.", "mx.broken.test. A 127.0.0.1")
	broken := fmt.Sprintf("_%d._tcp.mx.broken.test", port)
	h.zone.ServFail(broken)
	for _, name := range []string{"pinned.test", "mx.pinned.test", fmt.Sprintf("_%d._tcp.mx.pinned.test", port), "broken.test", "mx.broken.test"} {
		h.zone.SetAuthentic(name)
	}
	var ids []db.ID
	for _, to := range []string{"bob@pinned.test", "bob@broken.test"} {
		ids = append(ids, h.accept(h.newMail(lax), to), h.accept(h.newMail(strict), to), h.accept(h.newMail(nil), to))
	}
	h.run()
	for i, want := range []string{"delivered 2.0.0", "bounced 5.7.10", "deferred 4.7.5", "delivered 2.0.0", "deferred 4.7.5", "deferred 4.7.5"} {
		if got := h.states(ids[i]); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for _, m := range s.mail() {
		if !m.tls {
			t.Error("in clear, although TLS was there")
		}
	}
}
