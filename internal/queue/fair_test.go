// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

// A session that ends because destinations wait for a session leaves its slot to them.
func TestBacklogGivesTurns(t *testing.T) {
	const backlog = 300
	var mu sync.Mutex
	var carried, before int
	began, finish := make(chan bool), make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		mu.Lock()
		defer mu.Unlock()
		if c.Deliveries[0].Destination == "b.test" {
			before = carried
		} else if carried++; carried == 1 {
			began <- true
			<-finish
		}
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		carried = 0
		h.run()
		for range backlog / 50 {
			h.send(strings.Fields(strings.Repeat("ok@a.test ", 50))...)
		}
		<-began
		h.send("ok@b.test")
		finish <- true
		h.awaitDelivered(backlog + 1)
		if before > 100 {
			t.Errorf("%d went to the long backlog before one to another destination", before)
		}
	}, func(o *queue.Options) { o.MaxSessions, o.Window = 1, 2*backlog })
}

// One account's mail to many slow destinations leaves sessions and slots for other accounts.
func TestAccountsShare(t *testing.T) {
	for name, one := range map[string]struct {
		destinations, each int
		set                func(*queue.Options)
	}{
		"runs":   {20, 1, func(o *queue.Options) { o.MaxSessions = 8 }},
		"places": {2, 50, func(o *queue.Options) { o.Capacity = 40 }},
	} {
		t.Run(name, func(t *testing.T) {
			var release chan bool
			c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
				if c.Deliveries[0].Destination != "live.test" {
					<-release
				}
				return []queue.Outcome{delivered}
			}}
			eachFixture(t, c, func(t *testing.T, h *fixture) {
				release = make(chan bool)
				h.run()
				for i := range one.destinations * one.each {
					h.send(fmt.Sprintf("ok@slow%d.test", i%one.destinations))
				}
				h.settledOf() // those that got no slot
				var others []db.ID
				for range 3 {
					m := h.message()
					m.Account = h.db.NewID()
					others = append(others, h.accept(m, to("ok@live.test")))
				}
				h.await(len(others))
				for _, m := range others {
					h.wantStates(m, "delivered")
				}
				close(release)
				h.awaitDelivered(one.destinations * one.each)
				h.end()
				if n := h.queue.Dispatched().Accounts; n != 0 {
					t.Errorf("%d accounts are remembered", n)
				}
			}, one.set)
		})
	}
}

// If an account has used up its share, a destination is still tried for another account's mail.
func TestAccountsShareADestination(t *testing.T) {
	release := make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if c.Deliveries[0].Destination != "live.test" {
			<-release
		}
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		release = make(chan bool)
		h.run()
		for i := range 20 {
			h.send(fmt.Sprintf("ok@slow%d.test", i))
		}
		mine := h.send("ok@live.test") // behind the twenty
		m := h.message()
		m.Account = h.db.NewID()
		theirs := h.accept(m, to("ok@live.test"))
		h.await(2)
		h.wantStates(mine, "delivered")
		h.wantStates(theirs, "delivered")
		close(release)
		h.awaitDelivered(20)
	}, func(o *queue.Options) { o.MaxSessions = 8 })
}

// Stalled destinations give their slots to the waiting rows of others: one account's mail to hosts
// that take minutes per message, new or claimed, does not delay other accounts' retries.
func TestStillDestinationsGiveWay(t *testing.T) {
	const slow, each = 3, 10 // all slots for waiting rows
	for name, wait := range map[string]time.Duration{"new": 0, "claimed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := &tarpits{}
			eachFixture(t, c.deliveryAgent(), func(t *testing.T, h *fixture) {
				c.fill()
				close(c.live)
				h.run()
				theirs := h.message()
				theirs.Account = h.db.NewID()
				theirs.DueAt = h.clock.Now().Add(wait + time.Minute)
				h.accept(theirs, to("ok@live.test"))
				for i := range slow * each {
					m := h.message()
					m.DueAt = h.clock.Now().Add(wait)
					h.accept(m, to(fmt.Sprintf("ok@slow%d.test", i%slow)))
				}
				h.later(wait)
				for s := h.queue.Dispatched(); s.Ready != slow*(each-1) || s.InAttempt != slow; s = h.queue.Dispatched() {
					runtime.Gosched()
				}
				h.later(2 * time.Minute)
				h.awaitDelivered(1)
				h.wantStates(theirs.ID, "delivered")
				close(c.slow)
				h.later(2 * time.Minute)
				h.awaitDelivered(slow * each)
			}, func(o *queue.Options) { o.Capacity, o.Window = 40, each })
		})
	}
}

// Preempted deliveries keep their slots until their release is written: however long that takes, no
// more deliveries than needed are preempted.
func TestGivingWayOnce(t *testing.T) {
	c := &tarpits{}
	eachFixture(t, c.deliveryAgent(), func(t *testing.T, h *fixture) {
		theirs, longest := c.standStill(h)
		close(c.live)
		let := h.lock(longest)
		for range 3 {
			h.look()
			h.wantReady(4 * 9) // two were preempted: 45 slots are left
			h.clock.Add(6 * time.Second)
		}
		let()
		h.awaitDelivered(1)
		h.wantStates(theirs, "delivered")
		close(c.slow)
		h.run()
		h.later(2 * time.Minute)
		h.awaitDelivered(6 * 10)
	}, func(o *queue.Options) { o.Capacity, o.Window = 80, 10 })
}

// Destinations don't count as stalled while the queue may start no attempts.
func TestPauseIsNotStandingStill(t *testing.T) {
	c := &tarpits{}
	eachFixture(t, c.deliveryAgent(), func(t *testing.T, h *fixture) {
		theirs, _ := c.standStill(h)
		h.send("ok@live.test")
		dbtest.Exec(t, h.db, hideEvents.With())
		close(c.live)
		h.log.await(t, "the database does not take")
		h.look()
		dbtest.Exec(t, h.db, showEvents.With())
		h.awaitDelivered(1)
		for h.queue.Stats().Unwritten > 0 {
			runtime.Gosched()
		}
		h.clock.Add(6 * time.Second)
		h.look()
		h.wantReady(6 * 9)
		h.clock.Add(time.Minute)
		h.look()
		h.awaitDelivered(1)
		h.wantStates(theirs, "delivered")
		close(c.slow)
		h.run()
		h.later(2 * time.Minute)
		h.awaitDelivered(6 * 10)
	}, func(o *queue.Options) { o.Capacity, o.Window = 84, 10 })
}

// tarpits accept no mail until slow is closed; live.test accepts none until live is.
type tarpits struct{ slow, live chan bool }

func (p *tarpits) fill() { p.slow, p.live = make(chan bool), make(chan bool) }

func (p *tarpits) deliveryAgent() *deliveryAgent {
	return &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		until := p.slow
		if c.Deliveries[0].Destination == "live.test" {
			until = p.live
		}
		<-until
		return []queue.Outcome{delivered}
	}}
}

// standStill leases mail for six tarpits, which use all slots for waiting rows, and advances the
// clock by two minutes. It returns a waiting message, and a leased one of the tarpit that is
// stalled longest.
func (p *tarpits) standStill(h *fixture) (theirs, longest db.ID) {
	const slow, each = 6, 10
	p.fill()
	h.queue.Begin()
	m := h.message()
	m.Account = h.db.NewID()
	m.DueAt = h.clock.Now().Add(time.Minute)
	theirs = h.accept(m, to("ok@live.test"))
	for i := range slow {
		for range each {
			m := h.send(fmt.Sprintf("ok@slow%d.test", i))
			if i == 0 {
				longest = m
			}
		}
		for h.queue.Dispatched().Ready != (i+1)*(each-1) {
			runtime.Gosched()
		}
		h.clock.Add(time.Second)
	}
	h.clock.Add(2 * time.Minute)
	return theirs, longest
}

// lock locks a message's delivery rows until the returned function is called.
func (h *fixture) lock(message db.ID) func() {
	locked, let, over := make(chan bool), make(chan bool), make(chan error)
	go func() {
		over <- h.db.Tx(context.Background(), func(tx *db.Tx) error {
			_, err := tx.Exec(context.Background(), touch.With(message))
			close(locked)
			<-let
			return err
		})
	}()
	<-locked
	return func() {
		close(let)
		if err := <-over; err != nil {
			h.t.Error(err)
		}
	}
}

func (h *fixture) look() {
	h.t.Helper()
	if err := h.queue.Look(context.Background()); err != nil {
		h.t.Error(err)
	}
}

// wantReady checks how many deliveries wait in memory for an attempt.
func (h *fixture) wantReady(want int) {
	h.t.Helper()
	if n := h.queue.Dispatched().Ready; n != want {
		h.t.Errorf("%d are ready, not %d", n, want)
	}
}

var touch = db.SQL(`UPDATE delivery SET due_at = due_at WHERE message = $1`)

// While an override waits for the database, its deliveries start no sessions that would find
// nothing.
func TestOverruledBeginsNoRuns(t *testing.T) {
	began, finish := make(chan bool), make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(context.Context, *queue.Transaction) []queue.Outcome {
		began <- true
		<-finish
		return []queue.Outcome{delivered}
	}}
	var chosen atomic.Int64
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		chosen.Store(0)
		h.run()
		h.send("one@a.test")
		<-began
		two := h.send("two@a.test")
		let, cancelled := h.lock(two), make(chan error)
		go func() {
			_, err := h.queue.Cancel(context.Background(), two)
			cancelled <- err
		}()
		for h.queue.Overruling() == 0 {
			runtime.Gosched()
		}
		finish <- true
		for h.queue.Stats().Sessions > 0 && chosen.Load() < 100 {
			runtime.Gosched()
		}
		if n := chosen.Load(); n != 1 {
			t.Errorf("%d runs began", n)
		}
		let()
		if err := <-cancelled; err != nil {
			t.Error(err)
		}
		h.await(2)
		h.wantStates(two, "cancelled")
	}, func(o *queue.Options) {
		choose := o.ChooseAgent
		o.ChooseAgent = func(ctx context.Context, destination string) (queue.Agent, error) {
			chosen.Add(1)
			return choose(ctx, destination)
		}
	})
}

// An unsubscribe while a scheduled delivery is promoted gets its own sequence number.
func TestUnsubscribedWhilePromoted(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		var once atomic.Bool
		var h *fixture
		h = newFixture(t, d, n, script(), func(o *queue.Options) {
			describe := o.Describe
			o.Describe = func(ctx context.Context, id db.ID) (queue.MessageInfo, error) {
				if once.CompareAndSwap(false, true) {
					link := suppression.UnsubscribeLink{Account: h.account, Message: id, Address: "ok@a.test"}
					if done, err := h.queue.RecordUnsubscribe(ctx, link, queue.UnsubscribeByLink); !done || err != nil {
						t.Error(done, err)
					}
				}
				return describe(ctx, id)
			}
		})
		h.run()
		m := h.message()
		m.DueAt = h.clock.Now().Add(time.Hour)
		h.accept(m, to("ok@a.test"))
		h.later(2 * time.Hour)
		h.awaitDelivered(1)
		h.wantEvents(m.ID, "unsubscribe 1, delivery_status 2 queued, delivery_status 3 delivered")
	})
}

// Continuous claims don't keep the rows of a commit of unknown outcome from being found: no claim
// starts until they were searched.
func TestReconcileWhileClaiming(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.queue.Begin()
		due := h.message()
		due.DueAt = h.clock.Now().Add(time.Minute)
		h.accept(due, to("ok@z.test"))
		m := h.message()
		p := h.queue.Reserve(m, to("ok@a.test"))
		if err := h.db.Write(t.Context(), m.Account, &db.Mutation{Apply: p.AddStatements}); err != nil {
			t.Fatal(err)
		}
		p.Abandon() // as if Write had said that it failed
		h.await(1)
		end := h.queue.Filling()
		h.clock.Add(2 * time.Minute)
		if err := h.queue.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := h.queue.Dispatched().Claims; n != 1 {
			t.Errorf("%d claims are under way", n)
		}
		end()
		if err := h.queue.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.awaitDelivered(2)
		h.wantStates(due.ID, "delivered")
		h.wantStates(m.ID, "delivered")
	})
}

// The number of dead destinations in memory that are not in backoff is bounded.
func TestDeadDestinationsAreForgotten(t *testing.T) {
	const dead, places = 30, 10
	c := &deliveryAgent{parallel: 1, answer: func(context.Context, *queue.Transaction) []queue.Outcome { return nil }}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		h.queue.Begin()
		for i := range dead {
			m := h.send(fmt.Sprintf("ok@dead%d.test", i))
			h.await(1)
			if _, err := h.queue.Cancel(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []int{dead, 2 * places} {
			if err := h.queue.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := h.queue.Stats().Destinations; n != want {
				t.Errorf("%d destinations are known, not %d", n, want)
			}
			h.clock.Add(2 * time.Minute)
		}
	}, func(o *queue.Options) { o.Capacity = places })
}
