// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
)

// Hosts that failed are tried last for a while, for any mail.
func TestDeadHostIsRemembered(t *testing.T) {
	a := &sink{answer: refuse("greeting", "554 not here")}
	b := &sink{}
	h := twoHosts(t, a, b)
	h.zone.Add("e.test. MX 10 a.d.test.", "e.test. MX 20 b.d.test.")
	for _, to := range []string{"bob@d.test", "bob@d.test", "bob@e.test"} {
		if got := h.states(h.send(to)); got != "delivered 2.0.0" {
			t.Fatalf("states %s", got)
		}
		h.later(time.Minute)
	}
	if n := a.connections(); n != 1 {
		t.Errorf("the first host was asked %d times", n)
	}
	h.later(time.Hour)
	h.await(h.send("bob@d.test"))
	if n := a.connections(); n != 2 {
		t.Errorf("the first host was asked %d times, and is not asked again", n)
	}
}

// A connection that the host closed while it was idle costs no attempt.
func TestStaleConnection(t *testing.T) {
	s := &sink{answer: func(session int, line string) string {
		if session == 1 && strings.Contains(line, "<second@") {
			return drop
		}
		if session == 1 && strings.HasPrefix(line, "MAIL FROM:<stale@") {
			return drop
		}
		return ""
	}}
	h := oneHost(t, s)
	h.await(h.send("first@d.test"))
	id := h.accept(h.newMail(func(m *queue.OutboundMessage) { m.Sender = "stale@from.test" }), "x@d.test")
	if a := h.attempt(id); a.Outcome != queue.Delivered || a.Number != 1 || s.connections() != 2 {
		t.Errorf("attempt %+v over %d connections", a, s.connections())
	}
}

// If all SMTP sessions break in the middle, the destination is paused, so that not every message
// tries in vain.
func TestBrokenDestination(t *testing.T) {
	s := &sink{answer: refuse("final", drop)}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), func(o *relay.Options) { o.MaxConnsPerDestination = 1 }, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	var ids []db.ID
	for range 50 {
		ids = append(ids, h.send("bob@d.test"))
	}
	ended := h.watch()
	h.run()
	<-ended
	h.await(ids[:3]...)
	if n := s.connections(); n < 3 || n > 4 {
		t.Errorf("%d connections", n)
	}
}

// A host that accepts few connections still gets all its mail at once, over those.
func TestFewConnectionsAtATime(t *testing.T) {
	var mu sync.Mutex
	open, most := map[int]bool{}, 0
	s := &sink{}
	s.answer = func(session int, line string) string {
		mu.Lock()
		defer mu.Unlock()
		switch line {
		case "greeting":
			if len(open) == 2 {
				return "421 4.7.0 too many connections from you"
			}
			open[session] = true
			most = max(most, len(open))
		case "QUIT":
			delete(open, session)
		}
		return ""
	}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	var ids []db.ID
	for range 150 {
		ids = append(ids, h.send("bob@d.test"))
	}
	h.run()
	for _, id := range ids {
		if a := h.attempt(id); a.Outcome != queue.Delivered || a.Number != 1 {
			t.Fatalf("attempt %+v", a)
		}
	}
	if len(s.mail()) != 150 || most > 2 {
		t.Errorf("%d messages over %d connections", len(s.mail()), s.connections())
	}
}

// A host that is down is dialled once, for any number of waiting messages and domains.
func TestDeadHostIsDialledOnce(t *testing.T) {
	s := listen(t, &sink{answer: refuse("greeting", "554 not here")})
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "e.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	var ids []db.ID
	for i := range 100 {
		ids = append(ids, h.send([]string{"bob@d.test", "bob@e.test"}[i%2]))
	}
	h.run()
	h.await(ids[:2]...)
	if n := s.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// watched signals the end of each session.
type watched struct {
	queue.Agent
	ended chan struct{}
}

// watch returns a channel that receives a value when a session has ended.
func (h *fixture) watch() <-chan struct{} {
	w := &watched{h.deliveryAgent, make(chan struct{}, 10_000)}
	h.deliveryAgent = w
	return w.ended
}

func (w *watched) Deliver(ctx context.Context, r *queue.Session) {
	w.Agent.Deliver(ctx, r)
	w.ended <- struct{}{}
}

// Many messages to one host share few connections.
func TestConnectionsAreReused(t *testing.T) {
	s := &sink{}
	h := oneHost(t, s)
	var ids []db.ID
	var mu sync.Mutex
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 125 {
				id := h.send("bob@d.test")
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	h.await(ids...)
	if len(s.mail()) != 1000 || s.connections() > 20 {
		t.Errorf("%d messages over %d connections", len(s.mail()), s.connections())
	}
}

// After too many broken SMTP sessions each recipient gets the reply to its own RCPT, not the first
// recipient's.
func TestBrokenTellsEachItsOwn(t *testing.T) {
	s := listen(t, &sink{answer: func(_ int, line string) string {
		switch {
		case strings.HasPrefix(line, "RCPT TO:<alice@"):
			return "451 4.2.0 alice moves house"
		case line == "final":
			return drop
		}
		return ""
	}})
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	var ids []db.ID
	for range 3 {
		ids = append(ids, h.send("alice@d.test", "bob@d.test"))
	}
	h.run()
	h.await(ids...)
	for _, id := range ids {
		all := h.deliveries(id)
		if len(all) != 2 || all[0].Reply != "alice moves house" || all[1].Reply == all[0].Reply || all[1].Reply == "" {
			t.Errorf("%+v", all)
		}
	}
}

// Messages that we can't read are not the host's fault: messages queued after them go out in the
// same session.
func TestUnreadIsNotBroken(t *testing.T) {
	s := &sink{}
	listen(t, s)
	h := newFixture(t, s.addr.Port(), nil, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
	for range 4 {
		h.accept(h.newMail(func(m *queue.OutboundMessage) {
			m.Body = func(context.Context) (io.ReadCloser, error) { return nil, syscall.EIO }
		}), "bob@d.test")
	}
	id := h.send("bob@d.test")
	h.run()
	if got := h.states(id); got != "delivered 2.0.0" {
		t.Errorf("states %s", got)
	}
}
