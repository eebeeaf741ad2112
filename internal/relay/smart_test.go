// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

func TestSmartHost(t *testing.T) {
	s := listen(t, &sink{tls: certificate(t, "relay.test")})
	h := newFixture(t, 25, nil, "relay.test. A 127.0.0.1")
	h.router.SmartHost = &route.SmartHost{Host: "relay.test", Port: s.addr.Port()}
	h.run()
	for _, to := range []string{"bob@d.test", "bob@e.test"} {
		id := h.send(to)
		if got := h.states(id); got != "delivered 2.0.0" {
			t.Errorf("states %s", got)
		}
		if a := h.attempt(id); a.Host != "relay.test" {
			t.Errorf("attempt %+v", a)
		}
		h.idle() // the connection can be reused once the session has ended
	}
	if s.connections() != 1 {
		t.Errorf("%d connections: two destinations share the relay's", s.connections())
	}
	// With verification, this certificate of nobody's is not good enough, and
	// the mail waits.
	h.router.SmartHost = &route.SmartHost{Host: "relay.test", Port: s.addr.Port(), TLS: smtpclient.TLSRequired, Verify: true}
	if a := h.attempt(h.send("bob@f.test")); a.Outcome != queue.Deferred || a.Stage != "handshake" {
		t.Errorf("attempt %+v", a)
	}
}

// submission is a go-smtp server that requires a login.
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

// logIn makes a sink require a login with one password.
func logIn(mechanism, user, password string) func(int, string) string {
	plain := base64.StdEncoding.EncodeToString([]byte("\x00" + user + "\x00" + password))
	var mu sync.Mutex
	asked := map[int]string{} // what comes next
	return func(n int, line string) string {
		mu.Lock()
		defer mu.Unlock()
		switch expect := asked[n]; {
		case strings.HasPrefix(line, "AUTH") && mechanism == "PLAIN":
			if line == "AUTH PLAIN "+plain {
				return "235 2.7.0 welcome"
			}
			return "535 5.7.8 not with " + strings.TrimPrefix(line, "AUTH PLAIN ")
		case line == "AUTH LOGIN":
			asked[n] = "user"
			return "334 VXNlcm5hbWU6"
		case expect == "user" && line == base64.StdEncoding.EncodeToString([]byte(user)):
			asked[n] = "password"
			return "334 UGFzc3dvcmQ6"
		case expect == "password":
			asked[n] = ""
			if line == base64.StdEncoding.EncodeToString([]byte(password)) {
				return "235 2.7.0 welcome"
			}
			return "535 5.7.8 not with " + line
		}
		return ""
	}
}

// relayTo starts a house with the smart host of a URL; %d is the port.
func relayTo(t *testing.T, s *sink, ca *certtest.CA, relayURL string) (*fixture, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	h := newFixture(t, 25, func(o *relay.Options) {
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, "relay.test. A 127.0.0.1", "other.test. A 127.0.0.1")
	u, err := url.Parse(fmt.Sprintf(relayURL, s.addr.Port()))
	if err != nil {
		t.Fatal(err)
	}
	if h.router.SmartHost, err = route.ParseSmartHost(u); err != nil {
		t.Fatal(err)
	}
	h.router.Roots = ca.Pool()
	h.run()
	return h, log
}

// The variants of a smart host's URL, and what can go wrong with each. The password appears in no
// log or record.
func TestRelayURL(t *testing.T) {
	ca := certtest.New(t, "root")
	const password = "Ses&ame-42"
	for _, c := range []struct {
		url, mechanism string
		implicit       bool
		want, stage    string
		tls, story     string
	}{
		{"smtp://us:Ses&ame-42@relay.test:%d", "PLAIN", false, "delivered 2.0.0", "final", "verified", "C: AUTH PLAIN ***"},
		{"smtp://us:Ses&ame-42@relay.test:%d", "LOGIN", false, "delivered 2.0.0", "final", "verified", "C: ***"},
		{"smtps://us:Ses&ame-42@relay.test:%d", "PLAIN", true, "delivered 2.0.0", "final", "verified", "C: AUTH PLAIN ***"},
		{"smtps://us:Ses&ame-42@relay.test:%d", "LOGIN", true, "delivered 2.0.0", "final", "verified", "C: ***"},
		{"smtp://us:Ses%%26ame-43@relay.test:%d", "PLAIN", false, "deferred 5.7.8", "auth", "verified", "S: 535 5.7.8 not with ***"},
		{"smtps://us:Ses%%26ame-43@relay.test:%d", "LOGIN", true, "deferred 5.7.8", "auth", "verified", "S: 535 5.7.8 not with ***"},
		{"smtp://us:Ses&ame-42@relay.test:%d", "CRAM-MD5", false, "deferred 4.7.0", "auth", "verified", "neither AUTH PLAIN nor AUTH LOGIN"},
		{"smtp://us:Ses&ame-42@other.test:%d", "PLAIN", false, "deferred 4.7.0", "handshake", "", "certificate is valid for relay.test, not other.test"},
		{"smtp://us:Ses&ame-42@other.test:%d?verify=no", "PLAIN", false, "delivered 2.0.0", "final", "TLS 1.3", "certificate not checked"},
		{"smtps://other.test:%d", "", true, "deferred 4.7.0", "handshake", "", "not other.test"},
		{"smtps://other.test:%d?verify=no", "", true, "delivered 2.0.0", "final", "TLS 1.3", "certificate not checked"},
		{"smtp://other.test:%d", "", false, "delivered 2.0.0", "final", "TLS 1.3", "certificate not checked"},
		{"smtp://other.test:%d?verify=yes", "", false, "deferred 4.7.0", "handshake", "", "not other.test"},
	} {
		s := &sink{tls: ca.ServerConfig("relay.test"), implicit: c.implicit}
		if c.mechanism != "" {
			s.ext = []string{"PIPELINING", "AUTH " + c.mechanism}
			s.answer = logIn(c.mechanism, "us", password)
		}
		listen(t, s)
		h, log := relayTo(t, s, ca, c.url)
		id := h.send("bob@d.test")
		a := h.attempt(id)
		if got := strings.TrimSpace(string(a.Outcome) + " " + a.Enhanced); got != c.want || a.Stage != c.stage || !strings.Contains(a.TLS, c.tls) ||
			strings.Contains(a.TLS, "verified") != (c.tls == "verified") || !strings.Contains(a.Transcript, c.story) {
			t.Errorf("%s %s: %s at %s, TLS %q\n%s", c.url, c.mechanism, got, a.Stage, a.TLS, a.Transcript)
		}
		told := strings.Contains(log.String(), "smart host accepts no mail from us")
		if told != (a.Outcome == queue.Deferred) {
			t.Errorf("%s: log is\n%s", c.url, log)
		}
		written := a.Transcript + a.Reply + log.String() + h.deliveries(id)[0].Reply
		for _, secret := range []string{"Ses&ame-4", base64.StdEncoding.EncodeToString([]byte("Ses&ame-4"))[:11],
			base64.StdEncoding.EncodeToString([]byte("\x00us\x00Ses&ame-4"))[:15]} {
			if strings.Contains(written, secret) {
				t.Errorf("%s: %s is in\n%s", c.url, secret, written)
			}
		}
	}
}

// A third-party server, with a login over TLS from the first byte.
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

	h := newFixture(t, 25, nil, "relay.test. A 127.0.0.1")
	h.router.SmartHost = &route.SmartHost{Host: "relay.test", Port: uint16(l.Addr().(*net.TCPAddr).Port),
		TLS: smtpclient.TLSRequired, Auth: &smtpclient.Auth{User: "us", Password: "sesame"}}
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

	// A wrong password is the operator's problem: the mail is deferred.
	h.router.SmartHost = &route.SmartHost{Host: "relay.test", Port: h.router.SmartHost.Port,
		TLS: smtpclient.TLSRequired, Auth: &smtpclient.Auth{User: "us", Password: "wrong"}}
	if a := h.attempt(h.send("bob@e.test")); a.Outcome != queue.Deferred || a.Stage != "auth" || a.Code != 535 {
		t.Errorf("attempt %+v", a)
	}
}
