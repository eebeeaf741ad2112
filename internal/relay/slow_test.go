// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
)

// A host that asks us to stop is paused, longer each time. Only the message that got that reply has
// an attempt, and the waiting ones say why they wait. When the host accepts mail again, all of them
// go out.
func TestHostAsksToStop(t *testing.T) {
	var mu sync.Mutex
	full := true
	s := &sink{answer: func(_ int, line string) string {
		mu.Lock()
		defer mu.Unlock()
		if full && strings.HasPrefix(line, "RCPT") {
			return "421 4.7.0 too fast"
		}
		return ""
	}}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1", "e.test. MX 10 mx.d.test.")
	slow := h.deliveryAgent.(*relay.Agent)
	var ids []db.ID
	for range 50 {
		ids = append(ids, h.send("bob@d.test"))
	}
	ended := h.watch()
	h.run()
	wait := 5 * time.Second
	tried := func() (n int) {
		for _, id := range ids {
			n += h.deliveries(id)[0].Attempts
		}
		return n
	}
	for n := range 3 {
		<-ended
		for tried() <= n {
			<-h.events.C
		}
		if s.connections() != n+1 {
			t.Fatalf("%d connections", s.connections())
		}
		at := h.clock()
		if all := slow.RateLimitedHosts(); len(all) != 1 || all[0].PausedUntil.Sub(at) != wait || all[0].LastComplaint != "421 4.7.0 too fast" {
			t.Fatalf("slow are %+v", all)
		}
		for _, id := range ids {
			if h.deliveries(id)[0].Attempts == 0 {
				h.reads(id, "slowed: 127.0.0.1 asked us to slow down: 421 4.7.0 too fast")
			}
		}
		if n == 2 {
			break
		}
		h.later(wait)
		wait *= 2
	}
	// Another domain at the same host waits with it, untried.
	other := h.send("bob@e.test")
	<-ended
	h.reads(other, "slowed: 127.0.0.1 asked us to slow down: 421 4.7.0 too fast")
	if s.connections() != 3 {
		t.Errorf("%d connections", s.connections())
	}
	mu.Lock()
	full = false
	mu.Unlock()
	h.later(wait)
	delivered := 0
	for _, id := range append(ids, other) {
		if a := h.attempt(id); a.Outcome == queue.Delivered && a.Number == 1 {
			delivered++
		}
	}
	if delivered != 48 || tried() != 50 {
		t.Errorf("%d delivered in %d attempts", delivered, tried())
	}
}

// reads waits until a delivery's row has this last reply.
func (h *fixture) reads(id db.ID, reply string) {
	h.t.Helper()
	tick := time.NewTicker(time.Millisecond) // rows are released without an event
	defer tick.Stop()
	late := time.After(time.Minute)
	for h.deliveries(id)[0].Reply != reply {
		select {
		case <-tick.C:
		case <-late:
			h.t.Fatalf("%+v", h.deliveries(id)[0])
		}
	}
	if r := h.deliveries(id)[0]; r.State != queue.Queued || r.Attempts != 0 {
		h.t.Errorf("%+v", r)
	}
}

// Many domains at one provider share its connections. While the provider hangs, they leave the
// queue's sessions to others.
func TestManyDomainsAtOneHost(t *testing.T) {
	l := bind(t, "127.0.0.1", "127.0.0.2")
	hang := make(chan struct{})
	var mu sync.Mutex
	open, most := 0, 0
	provider := start(t, l[0], &sink{answer: func(_ int, line string) string {
		mu.Lock()
		switch line {
		case "greeting":
			open++
			most = max(most, open)
		case "QUIT":
			open--
		}
		mu.Unlock()
		if line == "DATA" {
			<-hang
		}
		return ""
	}})
	other := start(t, l[1], &sink{})
	var records []string
	for i := range 200 {
		// Each domain has its own name for the host, as with some providers.
		records = append(records, fmt.Sprintf("d%d.test. MX 10 mx%d.provider.test.", i, i), fmt.Sprintf("mx%d.provider.test. A 127.0.0.1", i))
	}
	records = append(records, "other.test. MX 10 mx.other.test.", "mx.other.test. A 127.0.0.2")
	addr, _ := dnstest.Start(t, records...)
	h := fixtureOn(t, provider.addr.Port(), func(o *relay.Options) { o.MaxConnsPerHost, o.MaxWaitersPerHost = 3, 16 }, addr, func(o *queue.Options) { o.MaxSessions = 30 })
	h.run()
	var ids []db.ID
	for i := range 200 {
		ids = append(ids, h.send(fmt.Sprintf("bob@d%d.test", i)))
	}
	for range 20 {
		if got := h.states(h.send("bob@other.test")); got != "delivered 2.0.0" {
			t.Fatalf("states %s", got)
		}
	}
	if n := len(provider.mail()); n != 0 || len(other.mail()) != 20 {
		t.Errorf("%d and %d messages", n, len(other.mail()))
	}
	close(hang)
	for n := 0; n < 200; {
		if n = len(provider.mail()); n < 200 {
			h.later(10 * time.Second)
			<-h.events.C
		}
	}
	h.await(ids...)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if a := h.attempt(id); a.Outcome != queue.Delivered || a.Number != 1 {
			t.Fatalf("attempt %+v", a)
		}
	}
	if most > 3 {
		t.Errorf("%d connections at a time", most)
	}
}

// The operator's rate limits a host across all destinations.
func TestRatePerHost(t *testing.T) {
	s := listen(t, &sink{})
	h := newFixture(t, s.addr.Port(), func(o *relay.Options) { o.MaxRatePerHost = 0.1 }, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1", "e.test. MX 10 mx.d.test.")
	ended := h.watch()
	h.run()
	first := h.send("bob@d.test")
	h.await(first)
	<-ended
	second, third := h.send("bob@d.test"), h.send("bob@e.test")
	for range 2 {
		<-ended
	}
	h.reads(second, "slowed: 127.0.0.1 is sent to slowly")
	h.reads(third, "slowed: 127.0.0.1 is sent to slowly")
	for n := 2; n <= 3; n++ {
		h.later(10 * time.Second)
		for len(s.mail()) < n {
			<-h.events.C
		}
	}
	h.await(second, third)
	if got := len(s.mail()); got != 3 {
		t.Errorf("%d messages", got)
	}
}

// A host's reply to one message is shown for others without its addresses: they may be another
// account's.
func TestSlownessTellsNoAddresses(t *testing.T) {
	s := &sink{answer: func(_ int, line string) string {
		if strings.HasPrefix(line, "RCPT") {
			return "421 4.7.0 <secret@d.test>: too much from a@from.test (SRS0=x=from.test=a@by.test), see https://d.test/slow"
		}
		return ""
	}}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1", "e.test. MX 10 mx.d.test.")
	first := h.send("secret@d.test")
	ended := h.watch()
	h.run()
	<-ended
	h.await(first)
	second := h.send("bob@e.test")
	<-ended
	h.reads(second, "slowed: 127.0.0.1 asked us to slow down: 421 4.7.0 <***>: too much from *** (***), see https://d.test/slow")
}

// The same applies to a host's reply to the last of several broken transactions.
func TestTroubleTellsNoAddresses(t *testing.T) {
	s := &sink{answer: func(_ int, line string) string {
		switch {
		case strings.HasPrefix(line, "RCPT"):
			return "450 4.2.0 <secret@d.test>: busy"
		case line == "DATA":
			return drop
		}
		return ""
	}}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	for range 3 {
		h.send("secret@d.test")
	}
	other := h.send("bob@d.test")
	h.run()
	h.reads(other, "<***>: busy")
}

// A host's reply before any message is shown unchanged, including a contact address. It can't
// contain other recipients.
func TestRefusalKeepsItsContact(t *testing.T) {
	const contact = "ask tosa@rx.d.test to clarify"
	s := listen(t, &sink{answer: refuse("greeting", "554 "+contact)})
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	first, other := h.send("bob@d.test"), h.send("carol@d.test")
	h.run()
	if a := h.attempt(first); a.Reply != contact {
		t.Errorf("the first reads %q\n%s", a.Reply, a.Transcript)
	}
	h.reads(other, contact)
}
