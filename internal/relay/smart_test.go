// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

func TestSmartHost(t *testing.T) {
	s := listen(t, &sink{tls: certificate(t, "relay.test")})
	h := newHouse(t, 25, nil, "relay.test. A 127.0.0.1")
	h.router.Smart = &route.SmartHost{Host: "relay.test", Port: s.addr.Port()}
	h.run()
	for _, to := range []string{"bob@d.test", "bob@e.test"} {
		id := h.send(to)
		if got := h.states(id); got != "delivered 2.0.0" {
			t.Errorf("states %s", got)
		}
		if a := h.attempt(id); a.Host != "relay.test" {
			t.Errorf("attempt %+v", a)
		}
	}
	if s.connections() != 1 {
		t.Errorf("%d connections: two destinations share the relay's", s.connections())
	}
	// With verification, this certificate of nobody's is not good enough, and
	// the mail waits.
	h.router.Smart = &route.SmartHost{Host: "relay.test", Port: s.addr.Port(), TLS: smtpclient.Required, Verify: true}
	if a := h.attempt(h.send("bob@f.test")); a.Outcome != queue.Deferred || a.Stage != "handshake" {
		t.Errorf("attempt %+v", a)
	}
}

// submission is a go-smtp server that wants a login.
type submission struct {
	mu   sync.Mutex
	got  []string // user, from, to and data of each message
	utf8 bool     // of the last MAIL
}

type session struct {
	s    *submission
	user string
	cur  string
}

func (s *submission) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{s: s}, nil }

func (c *session) AuthMechanisms() []string { return []string{sasl.Plain} }
func (c *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "sesame" {
			return smtp.ErrAuthFailed
		}
		c.user = user
		return nil
	}), nil
}
func (c *session) Reset()        { c.cur = "" }
func (c *session) Logout() error { return nil }
func (c *session) Mail(from string, o *smtp.MailOptions) error {
	if c.user == "" {
		return smtp.ErrAuthRequired
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.utf8 = o.UTF8
	c.cur = c.user + " " + from
	return nil
}
func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	c.cur += " " + to
	return nil
}
func (c *session) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.got = append(c.s.got, c.cur+"\n"+string(b))
	return err
}

// A server of other people's making, with a login over TLS from the first byte.
func TestSmartHostWithLogin(t *testing.T) {
	s := &submission{}
	srv := smtp.NewServer(s)
	srv.Domain, srv.EnableSMTPUTF8, srv.TLSConfig, srv.AllowInsecureAuth = "relay.test", true, certificate(t, "relay.test"), true
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done }) //nolint:errcheck // it was closed

	h := newHouse(t, 25, nil, "relay.test. A 127.0.0.1")
	h.router.Smart = &route.SmartHost{Host: "relay.test", Port: uint16(l.Addr().(*net.TCPAddr).Port),
		TLS: smtpclient.Required, Auth: &smtpclient.Auth{User: "us", Password: "sesame"}}
	h.run()
	id := h.send("bøb@d.test")
	if got := h.states(id); got != "delivered 2.0.0" {
		t.Fatalf("states %s", got)
	}
	if want := "us a@from.test bøb@d.test\n" + head + text; len(s.got) != 1 || s.got[0] != want || !s.utf8 {
		t.Errorf("received %q", s.got)
	}
	if a := h.attempt(id); a.TLS == "" || strings.Contains(a.Transcript, "sesame") {
		t.Errorf("attempt %+v", a)
	}

	// A wrong password is the operator's affair: the mail waits.
	h.router.Smart = &route.SmartHost{Host: "relay.test", Port: h.router.Smart.Port,
		TLS: smtpclient.Required, Auth: &smtpclient.Auth{User: "us", Password: "wrong"}}
	if a := h.attempt(h.send("bob@e.test")); a.Outcome != queue.Deferred || a.Stage != "auth" || a.Code != 535 {
		t.Errorf("attempt %+v", a)
	}
}
