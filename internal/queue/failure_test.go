// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
)

// A killed process leaves rows with its lease; the next one takes them over at once.
func TestTakeOver(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		const waiting = 2500 // more than a chunk
		d, n := leasetest.Open(t, url)
		first := newFixture(t, d, n, script(), func(o *queue.Options) { o.Window = waiting })
		var ids []db.ID
		for i := range waiting / 10 {
			ids = append(ids, first.send(strings.Fields(strings.Repeat(fmt.Sprintf("ok@d%d.test ", i%7), 10))...))
		}
		if n := first.owned(); n != waiting {
			t.Fatalf("%d rows are in the first one's name", n)
		}
		second := newFixture(t, d, first.next(), script())
		second.account = first.account
		second.run()
		second.awaitDelivered(waiting)
		for _, id := range ids {
			second.wantStates(id, strings.TrimSpace(strings.Repeat("delivered ", 10)))
		}
	})
}

// Deliveries that expire while no node runs are still tried for some hours.
func TestOutage(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		first := newFixture(t, d, n, script())
		m := first.send("ok@a.test", "later-ok@b.test", "later-later-later-ok@c.test")
		first.clock.Add(100 * time.Hour)
		second := newFixture(t, d, first.next(), script(), func(o *queue.Options) { o.Now = first.clock.Now })
		second.account, second.clock = first.account, first.clock
		second.run()
		second.await(3)
		second.wantStates(m, "delivered deferred deferred")
		second.later(2 * time.Minute)
		second.await(2)
		second.wantStates(m, "delivered delivered deferred")
		second.later(5 * time.Hour)
		second.await(1)
		second.wantStates(m, "delivered delivered bounced")
	})
}

// A report about a delivery may arrive after its process was killed and before another node leases
// it. It is then not sent again.
func TestReportBetweenHands(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		first := newFixture(t, d, n, script())
		m := first.send("ok@a.test", "ok@a.test")
		second := newFixture(t, d, first.next(), script())
		second.account = first.account
		if err := second.queue.Look(t.Context()); err != nil { // takes over; no claims before Run
			t.Fatal(err)
		}
		if n := second.owned(); n != 0 {
			t.Fatalf("%d rows are in a name", n)
		}
		dsn := queue.Report{Code: 550, Enhanced: "5.1.1", Text: "no such user", Remote: "mx2.test"}
		for _, want := range []bool{true, false} {
			if got, err := second.queue.RecordBounce(t.Context(), m, 0, dsn); got != want || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		}
		second.run()
		second.awaitDelivered(1)
		second.wantStates(m, "bounced delivered")
		second.wantEvents(m, "delivery_status 1 bounced, bounce 2 Permanent, delivery_status 1 delivered")
	})
}

// Outcomes of a process that has lost its lease change nothing.
func TestLateOutcome(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		began, finish := make(chan bool), make(chan bool)
		d, n := leasetest.Open(t, url)
		first := newFixture(t, d, n, &deliveryAgent{parallel: 1, answer: func(context.Context, *queue.Transaction) []queue.Outcome {
			began <- true
			<-finish
			return []queue.Outcome{bounced}
		}})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- first.queue.Run(ctx) }()
		m := first.send("ok@a.test")
		<-began
		second := newFixture(t, d, first.next(), script())
		second.account = first.account
		second.run()
		second.awaitDelivered(1)
		finish <- true
		first.await(1)
		first.log.await(t, "too late")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		second.wantStates(m, "delivered")
		second.wantEvents(m, "delivery_status 1 delivered")
	})
}

// An unreachable destination costs one attempt at a time, however long its backlog, and does not
// affect other destinations.
func TestDeadDestination(t *testing.T) {
	var tried atomic.Int32
	alive := atomic.Bool{}
	c := &deliveryAgent{parallel: 8, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if c.Deliveries[0].Destination == "dead.test" && !alive.Load() {
			tried.Add(1)
			return nil
		}
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		const waiting = 1000
		tried.Store(0)
		alive.Store(false)
		ids := make([]db.ID, waiting/50)
		for i := range ids {
			ids[i] = h.send(strings.Fields(strings.Repeat("someone@dead.test ", 50))...)
		}
		h.settledOf() // those that got no slot
		h.run()
		h.await(200) // the window: one attempt, and the others back off
		if n := tried.Load(); n != 1 {
			t.Errorf("%d attempts for the first window", n)
		}
		for i := range 300 {
			h.send(fmt.Sprintf("ok@live%d.test", i))
		}
		h.await(300)
		more := h.send("late@dead.test") // waits in its row without an attempt
		h.wantStates(more, "queued")
		h.later(2 * time.Minute)
		h.await(5) // one attempt, and the other leased deliveries
		if n := tried.Load(); n != 2 {
			t.Errorf("%d attempts after the second try", n)
		}
		alive.Store(true)
		h.settledOf()
		h.later(20 * time.Minute)
		h.awaitDelivered(waiting + 1)
		for _, id := range append(ids, more) {
			if s := h.states(id); strings.ReplaceAll(strings.ReplaceAll(s, "delivered", ""), " ", "") != "" {
				t.Fatalf("states %s", s)
			}
		}
	})
}

// Due deliveries are found even if the first due rows all belong to destinations that can take no
// more.
func TestDueBehindTheDead(t *testing.T) {
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if strings.HasPrefix(c.Deliveries[0].Destination, "dead") {
			return nil
		}
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		// No node has leased these deliveries: a queue that ended left them.
		ended := newFixture(t, h.db, h.node, c, func(o *queue.Options) { o.Window, o.Capacity = 1, 1 })
		ended.account = h.account
		for range 20 {
			ended.send(strings.Fields(strings.Repeat("someone@dead.test ", 30))...)
		}
		ended.clock.Add(time.Second)
		m := ended.send("ok@live.test")
		h.clock.Add(2 * time.Second)
		h.run()
		h.awaitDelivered(1)
		h.wantStates(m, "delivered")
	})
}

// While outcomes can't be written, no attempt starts and no outcome is lost.
func TestDatabaseTrouble(t *testing.T) {
	began, finish := make(chan string, 100), make(chan bool, 100)
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		<-finish
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		h.run()
		one := h.send("one@a.test")
		<-began
		dbtest.Exec(h.t, h.db, hideEvents.With())
		finish <- true
		h.log.await(t, "the database does not take")
		two := h.send("two@a.test")
		three := h.send("three@b.test")
		h.later(time.Minute)
		h.log.await(t, "the database does not take")
		h.drained(began)
		h.wantStates(one, "sending")
		dbtest.Exec(h.t, h.db, showEvents.With())
		finish <- true
		finish <- true
		h.awaitDelivered(3)
		<-began
		<-began
		for _, m := range []db.ID{one, two, three} {
			h.wantStates(m, "delivered")
			h.wantEvents(m, "delivery_status 1 delivered")
		}
	})
}

var (
	hideEvents = db.SQL(`ALTER TABLE event RENAME TO event_hidden`)
	showEvents = db.SQL(`ALTER TABLE event_hidden RENAME TO event`)
)

// An outcome whose commit was reported as failed is not written again when the delivery is leased
// again: its attempt row exists, so the write would always fail, and no attempt would start any
// more.
func TestOutcomeUnknown(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		began, finish := make(chan bool), make(chan bool)
		var tries, runs atomic.Int32
		d, n := leasetest.Open(t, url)
		c := &deliveryAgent{parallel: 1, answer: func(context.Context, *queue.Transaction) []queue.Outcome {
			if tries.Add(1) > 1 {
				return []queue.Outcome{delivered}
			}
			began <- true
			<-finish
			return []queue.Outcome{deferred}
		}}
		var h *fixture
		h = newFixture(t, d, n, c, func(o *queue.Options) {
			o.ChooseAgent = func(context.Context, string) (queue.Agent, error) {
				if runs.Add(1) > 1 { // fails on the second session
					h.log.await(t, "too late", "unique constraint")
				}
				return c, nil
			}
		})
		h.run()
		m := h.send("ok@a.test")
		<-began
		dbtest.Exec(t, d, hideEvents.With())
		finish <- true
		h.log.await(t, "the database does not take")
		// As if a first write had succeeded without Write's knowledge.
		leaseID, _ := n.Lease()
		dbtest.Exec(t, d, wasTried.With(m), wasDeferred.With(m))
		h.queue.ClaimAs(leaseID, "a.test")
		dbtest.Exec(t, d, showEvents.With())
		h.awaitDelivered(1)
		h.wantStates(m, "delivered")
	})
}

var (
	wasDeferred = db.SQL(`UPDATE delivery SET state = 'deferred', attempts = 1, sequence = sequence + 1, lease = NULL WHERE message = $1`)
	wasTried    = db.SQL(`INSERT INTO attempt (message, n, attempt, started_at, duration_us, outcome, host, ip, tls, stage, code, enhanced, reply, transcript)
		SELECT message, n, 1, 1, 1, 'deferred', '', '', '', '', 0, '', '', '' FROM delivery WHERE message = $1`)
)

// A drain lets attempts finish, writes their outcomes, and releases the other deliveries.
func TestDrain(t *testing.T) {
	began, finish := make(chan bool), make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- true
		<-finish
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		h.run()
		one := h.send("one@a.test")
		<-began
		two := h.send("two@a.test")
		h.stop()
		h.log.await(t, "the queue ends")
		finish <- true
		h.end()
		h.wantStates(one, "delivered")
		h.wantStates(two, "queued")
		if n := h.owned(); n != 0 {
			t.Errorf("%d rows are still in the node's name", n)
		}
		three := h.send("three@a.test") // still accepted, for the next process to deliver
		h.wantStates(three, "queued")
	})
}

// The main loop continues to watch for the end, even if many outcomes hang.
func TestLookWhileOutcomesHang(t *testing.T) {
	c := &tarpits{}
	eachFixture(t, c.deliveryAgent(), func(t *testing.T, h *fixture) {
		theirs, _ := c.standStill(h)
		close(c.live)
		free, looked := h.queue.TakeSlots(), make(chan bool)
		go func() {
			h.look()
			close(looked)
		}()
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		select {
		case <-looked:
		case <-limit.C:
			t.Error("it waits for a slot")
		}
		h.wantReady(4 * 9) // two destinations were preempted
		free()
		h.awaitDelivered(1)
		h.wantStates(theirs, "delivered")
		close(c.slow)
		h.run()
		h.later(2 * time.Minute)
		h.awaitDelivered(6 * 10)
	}, func(o *queue.Options) { o.Capacity, o.Window = 80, 10 })
}

// Once writes are canceled, no goroutine waits for a write slot.
func TestNoSlotAtTheEnd(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		defer h.queue.TakeSlots()()
		h.queue.GiveUp()
		done := make(chan bool)
		h.queue.Background(func() { close(done) })
		<-done
	})
}

// A delivery agent that stops when its context ends leaves its transaction deferred.
func TestDrainGivesUp(t *testing.T) {
	began := make(chan bool)
	c := &deliveryAgent{parallel: 1, answer: func(ctx context.Context, c *queue.Transaction) []queue.Outcome {
		began <- true
		<-ctx.Done()
		return []queue.Outcome{}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		h.run()
		one := h.send("one@a.test")
		<-began
		h.end()
		h.wantStates(one, "deferred")
	}, func(o *queue.Options) { o.DrainTimeout = time.Millisecond })
}

// A commit of unknown outcome may leave rows that are unknown in memory.
func TestReconcile(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		m := h.message()
		p := h.queue.Reserve(m, to("ok@a.test"))
		if err := h.db.Write(t.Context(), m.Account, &db.Mutation{Apply: p.AddStatements}); err != nil {
			t.Fatal(err)
		}
		p.Abandon() // as if Write had failed
		h.await(1)
		h.later(2 * time.Minute)
		h.awaitDelivered(1)
		h.wantStates(m.ID, "delivered")
	})
}

// A series of failing commits does not keep the rows of one of them from being found.
func TestReconcileUnderTrouble(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		m := h.message()
		p := h.queue.Reserve(m, to("ok@a.test"))
		if err := h.db.Write(t.Context(), m.Account, &db.Mutation{Apply: p.AddStatements}); err != nil {
			t.Fatal(err)
		}
		p.Abandon() // as if Write had failed
		h.await(1)
		for range 3 {
			h.clock.Add(50 * time.Second)
			h.queue.Reserve(h.message(), nil).Abandon()
			h.hub.Wake(notify.Key{Kind: notify.Queue})
		}
		h.awaitDelivered(1)
		h.wantStates(m.ID, "delivered")
	})
}

// A promotion in a commit of unknown outcome loses no delivery.
func TestPromotedUnknown(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		var once atomic.Bool
		h := newFixture(t, d, n, script(), func(o *queue.Options) {
			describe := o.Describe
			o.Describe = func(ctx context.Context, id db.ID) (queue.MessageInfo, error) {
				if once.CompareAndSwap(false, true) { // as if a first write had succeeded without Write's knowledge
					dbtest.Exec(t, d, promoted.With(id))
				}
				return describe(ctx, id)
			}
		})
		h.run()
		m := h.message()
		m.DueAt = h.clock.Now().Add(time.Hour)
		h.accept(m, to("ok@a.test"))
		h.later(2 * time.Hour)
		h.await(1)
		h.later(2 * time.Minute)
		h.awaitDelivered(1)
		h.wantStates(m.ID, "delivered")
	})
}

var promoted = db.SQL(`UPDATE delivery SET state = 'queued', sequence = sequence + 1 WHERE message = $1`)

// A node claims nothing under an expired lease: other nodes release it at once.
func TestClaimAfterTheLease(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		wall := testkit.NewClock(time.Now())
		d, err := db.Open(t.Context(), db.Options{URL: url, Now: wall.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() //nolint:errcheck // nothing to lose
		n, err := lease.Join(t.Context(), d, lease.Options{Name: "test", Holder: "test"})
		if err != nil {
			t.Fatal(err)
		}
		h := newFixture(t, d, n, script(), func(o *queue.Options) { o.Window, o.Capacity = 1, 1 })
		m := h.send("ok@a.test", "ok@a.test")
		leaseID, _ := n.Lease()
		wall.Add(time.Hour)
		dbtest.Exec(t, d, deleteLease.With(leaseID), releaseRows.With())
		h.queue.ClaimAs(leaseID, "a.test")
		if n := h.owned(); n != 0 {
			t.Errorf("%d rows have an expired lease", n)
		}
		h.wantStates(m, "queued queued")
	})
}

var (
	deleteLease = db.SQL(`DELETE FROM lease WHERE id = $1`)
	releaseRows = db.SQL(`UPDATE delivery SET lease = NULL`)
)
