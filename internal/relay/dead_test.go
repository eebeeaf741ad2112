// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
)

// silentHost accepts connections and sends nothing until it is told to hang up.
type silentHost struct {
	dialled chan net.Conn // every connection
	mu      sync.Mutex
	n       int
}

func silence(t *testing.T, l net.Listener) *silentHost {
	s := &silentHost{dialled: make(chan net.Conn, 1000)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.n++
			s.mu.Unlock()
			s.dialled <- nc
		}
	}()
	return s
}

func (s *silentHost) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// A destination that does not answer, with a lot of mail waiting for it, uses one connection, one
// session and a few slots, and causes almost no load. It delays no other mail: messages accepted
// meanwhile are delivered as usual, and messages that become due again are found.
func TestDeadDestination(t *testing.T) {
	waiting, others := 1000, 50
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		waiting, others = 100_000, 1000
	}
	l := bind(t, "127.0.0.1", "127.0.0.2")
	dead := silence(t, l[0])
	var mu sync.Mutex
	grey := true
	live := start(t, l[1], &sink{answer: func(_ int, line string) string {
		mu.Lock()
		defer mu.Unlock()
		if grey && strings.HasPrefix(line, "RCPT TO:<grey@") {
			return "451 4.7.1 greylisted"
		}
		return ""
	}})
	h := newFixture(t, live.addr.Port(), nil, "dead.test. MX 10 mx.dead.test.", "mx.dead.test. A 127.0.0.1",
		"live.test. MX 10 mx.live.test.", "mx.live.test. A 127.0.0.2")
	h.run()
	// deliver sends mail one by one, and returns how long each took.
	deliver := func() (took []time.Duration) {
		for range others {
			begun := time.Now()
			if a := h.attempt(h.send("bob@live.test")); a.Outcome != queue.Delivered || a.Number != 1 {
				t.Fatalf("attempt %+v", a)
			}
			took = append(took, time.Since(begun))
		}
		slices.Sort(took)
		return took
	}
	before := deliver()
	h.pile(waiting)
	held := <-dead.dialled
	during := deliver()
	if s := h.queue.Stats(); dead.connections() != 1 || s.Sessions > 2 || s.Leased > 201 {
		t.Errorf("%d connections, %+v", dead.connections(), s)
	}
	deferred := h.send("grey@live.test")
	if got := h.states(deferred); got != "deferred 4.7.1" {
		t.Fatalf("states %s", got)
	}
	mu.Lock()
	grey = false
	mu.Unlock()
	for round := range 3 {
		_ = held.Close()
		h.idle()
		h.later(20 * time.Minute) // all of it is due again
		held = <-dead.dialled
		deliver()
		if s := h.queue.Stats(); dead.connections() != round+2 || s.Sessions > 2 || s.Leased > 6 {
			t.Errorf("round %d: %d connections, %+v", round, dead.connections(), s)
		}
		for h.states(deferred) != "delivered 2.0.0" {
			<-h.events.C
		}
	}
	h.mu.Lock()
	if n := h.loads["dead@from.test"]; n > 8 {
		t.Errorf("%d messages were loaded in vain", n)
	}
	h.mu.Unlock()
	_ = held.Close()
	t.Logf("%d wait; without them %d messages took %v at the median and %v at most, with them %v and %v", waiting, others,
		before[others/2], before[others-1], during[others/2], during[others-1])
}

// pile queues n messages for the dead destination, many at a time.
func (h *fixture) pile(n int) {
	h.t.Helper()
	var work sync.WaitGroup
	for range 50 {
		work.Go(func() {
			for range n / 50 {
				h.accept(h.newMail(func(m *queue.OutboundMessage) { m.Sender = "dead@from.test" }), "bob@dead.test")
			}
		})
	}
	work.Wait()
}

// idle waits until the queue holds no deliveries in memory and has written everything.
func (h *fixture) idle() {
	h.t.Helper()
	tick := time.NewTicker(time.Millisecond) // rows are released without an event
	defer tick.Stop()
	for {
		if s := h.queue.Stats(); s.Leased == 0 && s.Sessions == 0 {
			return
		}
		<-tick.C
	}
}
