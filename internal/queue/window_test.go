// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/queue"
)

// Deliveries beyond the windows are also delivered, each once, in few sessions.
func TestWindows(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	c := &deliveryAgent{parallel: 3, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Deliveries[0].Recipient]++
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		clear(seen)
		h.run()
		const each, destinations = 60, 12
		for i := range each {
			var all []string
			for d := range destinations {
				all = append(all, fmt.Sprintf("%d@d%d.test", i, d))
			}
			h.send(all...)
		}
		h.awaitDelivered(each * destinations)
		for who, n := range seen {
			if n != 1 {
				t.Errorf("%s was carried %d times", who, n)
			}
		}
		h.end()
		if s := h.queue.Stats(); len(seen) != each*destinations || s.Leased != 0 || s.Sessions != 0 || s.InFlight != 0 {
			t.Errorf("%d carried; %+v", len(seen), s)
		}
	}, func(o *queue.Options) { o.Window, o.Capacity, o.MaxSessions = 10, 50, 2 })
}

// Destinations with long backlogs that accept nothing leave slots for others.
func TestShares(t *testing.T) {
	const slow, each = 3, 200
	release := make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if c.Deliveries[0].Destination != "z.test" {
			<-release
		}
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		release = make(chan bool)
		h.run()
		for i := range slow * each {
			m := h.message()
			m.DueAt = h.clock.Now().Add(time.Hour)
			h.accept(m, to(fmt.Sprintf("%d@d%d.test", i, i/each)))
		}
		m := h.message()
		m.DueAt = h.clock.Now().Add(time.Hour)
		h.accept(m, to("last@z.test"))
		h.later(2 * time.Hour)
		h.await(1)
		h.wantStates(m.ID, "delivered")
		close(release)
		h.awaitDelivered(slow * each)
	}, func(o *queue.Options) { o.Capacity = 400 })
}

// API mail has a transaction and a return path per recipient. Mail of a mailbox shares a
// transaction, except for blind copies. A message is prepared once.
func TestTransactions(t *testing.T) {
	var mu sync.Mutex
	var carried []string
	var from []string
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		mu.Lock()
		defer mu.Unlock()
		var all []string
		for _, d := range c.Deliveries {
			all = append(all, d.Recipient)
		}
		carried = append(carried, strings.Join(all, " "))
		from = append(from, c.From)
		if len(c.Deliveries) == 1 {
			return []queue.Outcome{delivered}
		}
		answers := slices.Repeat([]queue.Outcome{delivered}, len(c.Deliveries))
		if c.Deliveries[0].Attempts == 0 {
			answers[1] = deferred
		}
		return answers
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		carried, from = nil, nil
		rcpts := to("a@a.test", "b@a.test", "c@a.test", "d@a.test")
		for _, i := range []int{0, 1, 3} {
			rcpts[i].Kind = "envelope"
		}
		rcpts[2].Kind = "bcc"
		rcpts[2], rcpts[3] = rcpts[3], rcpts[2]
		m := h.accept(h.message(), rcpts)
		h.run()
		h.await(4)
		h.wantStates(m, "delivered deferred delivered delivered")
		if got := strings.Join(carried, ", "); got != "a@a.test b@a.test d@a.test, c@a.test" {
			t.Errorf("carried %s", got)
		}
		carried, from = nil, nil
		m = h.send("a@a.test", "b@a.test")
		h.await(2)
		if got := strings.Join(carried, ", "); got != "a@a.test, b@a.test" {
			t.Errorf("carried %s", got)
		}
		for n, f := range from {
			local, _, _ := strings.Cut(f, "@")
			id, of, ok := h.key.ParseReturnPath(local)
			if !ok || db.ID(id) != m || of != n || !strings.HasSuffix(f, "@from.test") {
				t.Errorf("return path %s", f)
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.prepared[m] < 1 || h.prepared[m] > 2 { // twice if the first was settled before the second was leased
			t.Errorf("prepared %d times", h.prepared[m])
		}
	})
}

// Deliveries that an agent puts back untried are tried again at once, but not for ever.
func TestPutBack(t *testing.T) {
	tries := 0
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		tries++
		return []queue.Outcome{{State: queue.Queued}}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		tries = 0
		h.run()
		m := h.send("a@a.test")
		h.await(1)
		h.wantStates(m, "deferred")
		if tries != 4 {
			t.Errorf("taken %d times", tries)
		}
	})
}

// A delivery that another node cancels is not attempted here, although it is in this node's memory.
func TestCancelElsewhere(t *testing.T) {
	began, finish := make(chan string), make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		<-finish
		return []queue.Outcome{delivered}
	}}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		h := newFixture(t, d, n, c).run()
		one := h.send("one@a.test")
		<-began
		two, three := h.send("two@a.test"), h.send("three@a.test")
		other, err := lease.Join(t.Context(), d, lease.Options{Name: "other", Holder: "elsewhere"})
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := newFixture(t, d, other, c)
		elsewhere.account = h.account
		elsewhere.wantStates(two, "sending") // its node has leased it
		if n, err := elsewhere.queue.Cancel(t.Context(), two); n != 1 || err != nil {
			t.Error(n, err)
		}
		h.clock.Add(2 * time.Second)
		finish <- true
		if got := <-began; got != "three@a.test" {
			t.Errorf("%s was carried", got)
		}
		finish <- true
		h.await(3)
		h.wantStates(one, "delivered")
		h.wantStates(two, "cancelled")
		h.wantStates(three, "delivered")
	})
}
