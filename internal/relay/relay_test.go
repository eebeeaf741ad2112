// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// oneHost returns a running house where d.test has one MX, which is s.
func oneHost(t *testing.T, s *sink) *fixture {
	t.Helper()
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	h.run()
	return h
}

// twoHosts returns a running house where d.test has two MX hosts, a (preferred) and b. A nil sink
// means that nothing listens there.
func twoHosts(t *testing.T, a, b *sink) *fixture {
	t.Helper()
	h := twoHostsWith(t, a, b, nil)
	h.run()
	return h
}

// twoHostsWith is twoHosts with options; the queue doesn't run yet.
func twoHostsWith(t *testing.T, a, b *sink, set func(*relay.Options)) *fixture {
	t.Helper()
	l := bind(t, "127.0.0.2", "127.0.0.1")
	start(t, l[0], b)
	if a == nil {
		_ = l[1].Close()
	} else {
		start(t, l[1], a)
	}
	return newFixture(t, b.addr.Port(), set, "d.test. MX 10 a.d.test.", "d.test. MX 20 b.d.test.",
		"a.d.test. A 127.0.0.1", "b.d.test. A 127.0.0.2")
}

func TestDelivered(t *testing.T) {
	s := &sink{tls: certificate(t, "another.test")}
	h := oneHost(t, s)
	id := h.send("bob@d.test")
	if got := h.states(id); got != "delivered 2.0.0" {
		t.Fatalf("states %s", got)
	}
	got := s.mail()
	if len(got) != 1 || got[0].from != "FROM:<a@from.test>" || got[0].to != "<bob@d.test>" || got[0].data != head+text || !got[0].tls {
		t.Errorf("received %+v", got)
	}
	a := h.attempt(id)
	if a.Outcome != queue.Delivered || a.Host != "mx.d.test" || a.IP != "127.0.0.1" || !strings.HasPrefix(a.TLS, "TLS 1.3") ||
		a.Stage != "final" || a.Code != 250 || a.Reply != "taken" || !strings.Contains(a.Transcript, "C: RCPT TO:<bob@d.test>") {
		t.Errorf("attempt %+v", a)
	}
	if r := h.deliveries(id)[0]; r.Remote != "mx.d.test" {
		t.Errorf("delivery %+v", r)
	}
}

// refuse replies to one kind of line; the greeting and the end of the message are "greeting" and
// "final".
func refuse(prefix, reply string) func(int, string) string {
	return func(_ int, line string) string {
		if strings.HasPrefix(line, prefix) {
			return reply
		}
		return ""
	}
}

// The host's reply at each step, and the outcome of the delivery.
func TestRefusals(t *testing.T) {
	cases := []struct {
		at, reply   string
		state       string
		stage       string
		connections int
	}{
		{"greeting", "554 go away", "deferred", "greeting", 1},
		{"greeting", "421 4.3.2 not now", "deferred 4.3.2", "greeting", 1},
		{"greeting", drop, "deferred 4.4.2", "greeting", 1},
		{"EHLO", "421 4.3.2 not now", "deferred 4.3.2", "ehlo", 1},
		{"EHLO", drop, "deferred 4.4.2", "ehlo", 1},
		{"MAIL", "451 4.7.1 greylisted", "deferred 4.7.1", "mail", 1},
		{"MAIL", "550 5.7.1 you are not liked", "bounced 5.7.1", "mail", 1},
		{"MAIL", "421 4.7.0 too fast", "deferred 4.7.0", "mail", 1},
		{"MAIL", drop, "deferred 4.4.2", "mail", 2},
		{"RCPT", "450 4.2.1 busy", "deferred 4.2.1", "rcpt", 1},
		{"RCPT", "550 5.1.1 no such user", "bounced 5.1.1", "rcpt", 1},
		{"RCPT", "552 too many recipients", "deferred", "rcpt", 1},
		{"RCPT", "421 4.7.0 too fast", "deferred 4.7.0", "rcpt", 1},
		{"RCPT", drop, "deferred 4.4.2", "rcpt", 2},
		{"DATA", "451 4.3.0 not now", "deferred 4.3.0", "data", 1},
		{"DATA", "554 5.6.0 never", "bounced 5.6.0", "data", 1},
		{"DATA", drop, "deferred 4.4.2", "data", 2},
		{"final", "451 4.3.0 not now", "deferred 4.3.0", "final", 1},
		{"final", "550 5.7.1 spam", "bounced 5.7.1", "final", 1},
		{"final", "421 4.3.0 ending", "deferred 4.3.0", "final", 1},
		{"final", drop, "deferred 4.4.2", "final", 1}, // the host may have accepted it
	}
	for _, c := range cases {
		t.Run(c.at+" "+c.reply, func(t *testing.T) {
			t.Parallel()
			s := &sink{tls: certificate(t, "mx.d.test"), answer: refuse(c.at, c.reply)}
			h := oneHost(t, s)
			id := h.send("bob@d.test")
			if got := h.states(id); got != c.state {
				t.Errorf("state %q, want %q", got, c.state)
			}
			a := h.attempt(id)
			if a.Stage != c.stage || a.Host != "mx.d.test" || !strings.Contains(a.Transcript, "connected to mx.d.test") {
				t.Errorf("attempt %+v", a)
			}
			if n := s.connections(); n != c.connections {
				t.Errorf("%d connections, want %d", n, c.connections)
			}
		})
	}
}

// If a host refuses the SMTP session, the next one is tried in the same attempt.
func TestNextHost(t *testing.T) {
	broken := &tls.Config{} // no certificate: the handshake fails
	cases := map[string]*sink{
		"dead":           nil,
		"refuses":        {answer: refuse("greeting", "554 no")},
		"busy":           {answer: refuse("greeting", "421 no")},
		"hangs up":       {answer: refuse("EHLO", drop)},
		"broken at MAIL": {answer: refuse("MAIL", drop)},
		"broken at DATA": {answer: refuse("DATA", drop)},
		"STARTTLS refused": {tls: broken, answer: func(_ int, line string) string {
			return refuse("STARTTLS", "454 4.7.0 no")(0, line) + refuse("MAIL", drop)(0, line)
		}},
		"broken in clear":   {tls: broken, answer: refuse("MAIL", drop)},
		"refused in clear":  {tls: broken, answer: func(n int, line string) string { return map[bool]string{n > 1: "554 no"}[line == "greeting" && n > 1] }},
		"TLS demanded":      {tls: broken, answer: refuse("MAIL", mustTLS)},
		"not SMTP at all":   {answer: refuse("greeting", "HTTP/1.1 400 Bad Request")},
		"greeting too long": {answer: refuse("greeting", strings.Repeat("220-x\r\n", 20_000)+"220 x")},
	}
	for name, a := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &sink{}
			h := twoHosts(t, a, b)
			id := h.send("bob@d.test")
			if got := h.states(id); got != "delivered 2.0.0" {
				t.Fatalf("states %s", got)
			}
			if got := b.mail(); len(got) != 1 || got[0].data != head+text {
				t.Errorf("received %+v", got)
			}
			all := h.attempt(id)
			if all.Number != 1 || all.Host != "b.d.test" || all.IP != "127.0.0.2" {
				t.Errorf("attempt %+v", all)
			}
			if a != nil && !strings.Contains(all.Transcript, "connected to a.d.test") {
				t.Errorf("the transcript does not tell of the first host:\n%s", all.Transcript)
			}
		})
	}
}

// If a host accepts no more mail for now, the next one gets the rest in the same attempt (RFC 5321
// §5.1). The message with the host's reply waits.
func TestNextHostAfterRateLimit(t *testing.T) {
	cases := map[string]struct {
		a    *sink
		set  func(*relay.Options)
		want []string // state and host of each message
	}{
		"reply":        {&sink{answer: refuse("RCPT", "421 4.7.0 too fast")}, nil, []string{"deferred a.d.test", "delivered b.d.test", "delivered b.d.test"}},
		"4.3.2":        {&sink{answer: refuse("MAIL", "451 4.3.2 not now")}, nil, []string{"deferred a.d.test", "delivered b.d.test", "delivered b.d.test"}},
		"own limit":    {&sink{}, func(o *relay.Options) { o.MaxRatePerHost = 0.1 }, []string{"delivered a.d.test", "delivered b.d.test"}},
		"cannot dial":  {nil, nil, []string{"delivered b.d.test", "delivered b.d.test", "delivered b.d.test"}},
		"drops, limit": {&sink{answer: refuse("MAIL", drop)}, func(o *relay.Options) { o.MaxRatePerHost = 0.1 }, []string{"delivered b.d.test"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := twoHostsWith(t, c.a, &sink{}, c.set)
			var ids []db.ID
			for range c.want {
				ids = append(ids, h.send("bob@d.test"))
			}
			h.run()
			var got []string
			for _, id := range ids {
				a := h.attempt(id)
				if a.Number != 1 {
					t.Errorf("attempt %+v", a)
				}
				got = append(got, string(a.Outcome)+" "+a.Host)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A host that sends nothing times out, and the next one is tried.
func TestSilentHost(t *testing.T) {
	for _, at := range []string{"greeting", "EHLO", "MAIL", "DATA"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			l := bind(t, "127.0.0.2", "127.0.0.1")
			b := start(t, l[0], &sink{})
			start(t, l[1], &sink{answer: func(_ int, line string) string {
				if strings.HasPrefix(line, at) {
					<-release
					return drop
				}
				return ""
			}})
			short := time.Second
			h := newFixture(t, b.addr.Port(), func(o *relay.Options) {
				o.Timeouts = smtpclient.Timeouts{Greeting: short, Command: short, DataInit: short, Quit: short}
			}, "d.test. MX 10 a.d.test.", "d.test. MX 20 b.d.test.", "a.d.test. A 127.0.0.1", "b.d.test. A 127.0.0.2")
			h.run()
			t.Cleanup(func() { close(release) })
			id := h.send("bob@d.test")
			if got := h.states(id); got != "delivered 2.0.0" {
				t.Errorf("states %s", got)
			}
		})
	}
}

// A final answer by the first host is final.
func TestNoSecondOpinion(t *testing.T) {
	for _, c := range [][2]string{
		{"MAIL", "550 5.7.1 no"}, {"RCPT", "550 5.1.1 no"}, {"final", "554 5.7.1 no"}, {"final", drop}, {"RCPT", "451 4.7.1 later"},
	} {
		a, b := &sink{answer: refuse(c[0], c[1])}, &sink{}
		h := twoHosts(t, a, b)
		id := h.send("bob@d.test")
		h.await(id)
		if b.connections() != 0 {
			t.Errorf("%v: the second host was asked", c)
		}
	}
}

// If the handshake of opportunistic TLS fails, the mail goes in clear at once.
func TestBrokenTLS(t *testing.T) {
	s := &sink{tls: &tls.Config{}}
	h := oneHost(t, s)
	id := h.send("bob@d.test")
	if got := h.states(id); got != "delivered 2.0.0" || s.connections() != 2 || s.mail()[0].tls {
		t.Errorf("states %s after %d connections", got, s.connections())
	}
	if a := h.attempt(id); a.TLS != "" || !strings.Contains(a.Transcript, "TLS handshake") {
		t.Errorf("attempt %+v", a)
	}
}

// With TLS 1.3 the handshake may fail at the host after it has ended for us: the result is the
// same.
func TestTLSBrokenAtTheHost(t *testing.T) {
	cfg := certificate(t, "mx.d.test")
	cfg.ClientAuth = tls.RequireAnyClientCert
	s := &sink{tls: cfg}
	h := oneHost(t, s)
	if got := h.states(h.send("bob@d.test")); got != "delivered 2.0.0" || s.connections() != 2 || s.mail()[0].tls {
		t.Errorf("states %s after %d connections", got, s.connections())
	}
}

// mustTLS is the reply in clear of a host that accepts nothing without TLS.
const mustTLS = "530 5.7.0 Must issue a STARTTLS command first"

// If a handshake with such a host fails once, the next one may succeed.
func TestBrokenTLSWhereItIsDemanded(t *testing.T) {
	good, mended := certificate(t, "mx.d.test"), atomic.Bool{}
	s := &sink{tls: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if mended.Load() {
			return good, nil
		}
		return nil, io.ErrUnexpectedEOF
	}}, answer: func(_ int, line string) string {
		if strings.HasPrefix(line, "MAIL") && !mended.Load() {
			return mustTLS
		}
		return ""
	}}
	h := oneHost(t, s)
	id := h.send("bob@d.test", "eve@d.test")
	if got := h.states(id); got != "deferred 5.7.0, deferred 5.7.0" || s.connections() != 2 {
		t.Fatalf("states %s after %d connections", got, s.connections())
	}
	mended.Store(true)
	h.later(5 * time.Minute)
	for h.states(id) != "delivered 2.0.0, delivered 2.0.0" {
		<-h.events.C
	}
	if got := s.mail(); len(got) != 1 || !got[0].tls {
		t.Errorf("received %+v", got)
	}
}

// If no host of a destination answers, the queue is told and tries again.
func TestNobodyListens(t *testing.T) {
	l := bind(t, "127.0.0.9")[0]
	_ = l.Close()
	h := newFixture(t, l.Addr().(*net.TCPAddr).AddrPort().Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.9")
	h.run()
	id := h.send("bob@d.test")
	a := h.attempt(id)
	if a.Outcome != queue.Deferred || a.Enhanced != "4.4.1" || a.Stage != "connect" || a.Host != "" ||
		!strings.HasPrefix(a.Reply, "mx.d.test: ") {
		t.Errorf("attempt %+v", a)
	}
	back, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	start(t, back, &sink{})
	h.later(5 * time.Minute)
	for h.states(id) != "delivered 2.0.0" {
		<-h.events.C
	}
}

func TestUnroutable(t *testing.T) {
	h := newFixture(t, 25, nil, "null.test. MX 0 .", "private.test. MX 10 mx.private.test.", "mx.private.test. A 10.0.0.1",
		"loop.test. MX 10 mail.ours.test.")
	h.zone.ServFail("fail.test")
	h.run()
	for domain, want := range map[string]string{
		"null.test": "bounced 5.1.10", "nowhere.test": "bounced 5.1.2", "private.test": "deferred 4.4.4",
		"loop.test": "bounced 5.4.6", "fail.test": "deferred 4.4.3",
	} {
		id := h.send("bob@" + domain)
		if got := h.states(id); got != want {
			t.Errorf("%s: states %s, want %s", domain, got, want)
		}
		if a := h.attempt(id); a.Stage != "dns" || a.Host != "" || a.Reply == "" {
			t.Errorf("%s: attempt %+v", domain, a)
		}
	}
}

// Each recipient of a transaction has its own outcome.
func TestRecipientsDiffer(t *testing.T) {
	s := &sink{answer: func(_ int, line string) string {
		switch {
		case strings.Contains(line, "<nobody@"):
			return "550 5.1.1 no such user"
		case strings.Contains(line, "<busy@"):
			return "450 4.2.1 busy"
		}
		return ""
	}}
	h := oneHost(t, s)
	id := h.send("bob@d.test", "nobody@d.test", "busy@d.test", "eve@d.test")
	if got := h.states(id); got != "delivered 2.0.0, bounced 5.1.1, deferred 4.2.1, delivered 2.0.0" {
		t.Errorf("states %s", got)
	}
	if got := s.mail(); len(got) != 1 || got[0].to != "<bob@d.test><eve@d.test>" {
		t.Errorf("received %+v", got)
	}
}

// A host that accepts few recipients at a time gets the rest immediately afterwards.
func TestFewRecipientsAtATime(t *testing.T) {
	n := 0
	limited := &sink{answer: func(_ int, line string) string {
		switch {
		case strings.HasPrefix(line, "MAIL"):
			n = 0
		case strings.HasPrefix(line, "RCPT"):
			if n++; n > 3 {
				return "452 4.5.3 too many recipients"
			}
		}
		return ""
	}}
	for _, s := range []*sink{limited, {ext: []string{"PIPELINING", "LIMITS RCPTMAX=3"}}} {
		h := oneHost(t, s)
		var to []string
		for i := range 20 {
			to = append(to, fmt.Sprintf("r%d@d.test", i))
		}
		id := h.send(to...)
		if got := h.states(id); strings.Count(got, "delivered") != 20 || len(s.mail()) != 7 || s.connections() != 1 {
			t.Errorf("%d messages over %d connections, states %s", len(s.mail()), s.connections(), got)
		}
		for _, m := range s.mail() {
			if m.data != head+text {
				t.Errorf("received %+v", m)
			}
		}
	}
}

// A host that hangs up after some recipients, instead of rejecting the others, gets fewer at a time
// from then on.
func TestHangsUpAfterAFewRecipients(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		resets      bool // each message may again have that many recipients
		connections int
	}{
		{"421", "421 4.7.0 too many recipients", true, 2},
		{"drops", drop, true, 2},
		{"drops, counting all of a connection", drop, false, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			taken := map[int]int{}
			s := listen(t, &sink{answer: func(session int, line string) string {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case c.resets && strings.HasPrefix(line, "MAIL"):
					taken[session] = 0
				case strings.HasPrefix(line, "RCPT"):
					if taken[session]++; taken[session] > 3 {
						return c.reply
					}
				}
				return ""
			}})
			h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
			h.run()
			var to []string
			for i := range 20 {
				to = append(to, fmt.Sprintf("r%d@d.test", i))
			}
			id := h.send(to...)
			if h.await(id); c.reply != drop { // the rest waits for a moment
				h.later(2 * time.Minute)
				for strings.Contains(h.states(id), "deferred") {
					<-h.events.C
				}
			}
			// Seven messages have three recipients at most each. There is one more when the queue has
			// leased only a part of the recipients by the time that a session takes some. Connections
			// show that no other message had too many.
			if got, n := h.states(id), len(s.mail()); strings.Count(got, "delivered") != 20 || n < 7 || n > 8 || s.connections() != c.connections {
				t.Errorf("%d messages over %d connections, states %s", len(s.mail()), s.connections(), got)
			}
		})
	}
}

// A message that can't be read is deferred, never sent in part, and does not affect others.
func TestUnreadableMessage(t *testing.T) {
	s := &sink{}
	h := oneHost(t, s)
	errLost := errors.New("the disk is gone")
	bad := h.newMail(func(m *queue.OutboundMessage) {
		m.Body = func(context.Context) (io.ReadCloser, error) { return nil, errLost }
	})
	half := h.newMail(func(m *queue.OutboundMessage) {
		m.Body = func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(text), failing{errLost})), nil
		}
	})
	for _, m := range []*queue.OutboundMessage{bad, half} {
		if got := h.states(h.accept(m, "bob@d.test")); got != "deferred 4.3.0" {
			t.Errorf("states %s", got)
		}
	}
	if got := h.states(h.send("bob@d.test")); got != "delivered 2.0.0" || len(s.mail()) != 1 {
		t.Errorf("the next: %s; %d messages arrived", got, len(s.mail()))
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestRuns(t *testing.T) {
	c := relay.New(relay.Options{MaxConnsPerDestination: 4, DeliveriesPerConn: 10})
	for waiting, want := range map[int]int{0: 1, 1: 1, 9: 1, 10: 2, 25: 3, 30: 4, 10_000: 4} {
		if got := c.Concurrency(waiting); got != want {
			t.Errorf("Runs(%d) = %d, want %d", waiting, got, want)
		}
	}
}

// What a host has accepted is reported as delivered, even if the service stops while it sends the
// other recipients.
func TestPartTakenAtTheEnd(t *testing.T) {
	reached, let := make(chan bool), make(chan bool)
	mails := 0
	s := listen(t, &sink{answer: func(_ int, line string) string {
		switch {
		case strings.HasPrefix(line, "RCPT TO:<b@"):
			return "452 4.5.3 too many recipients"
		case strings.HasPrefix(line, "MAIL"):
			if mails++; mails == 2 {
				close(reached)
				<-let
			}
		}
		return ""
	}})
	t.Cleanup(func() { close(let) })
	addr, _ := dnstest.Start(t, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	h := fixtureOn(t, s.addr.Port(), nil, addr, func(o *queue.Options) { o.DrainTimeout = time.Millisecond })
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.queue.Run(ctx) }()
	id := h.send("a@d.test", "b@d.test")
	<-reached
	end()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := h.states(id); got != "delivered 2.0.0, deferred 4.3.0" || len(s.mail()) != 1 {
		t.Errorf("states %s after %d messages", got, len(s.mail()))
	}
}
