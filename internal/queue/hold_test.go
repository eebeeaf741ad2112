// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
)

func (h *fixture) heldRows() (n int) {
	h.t.Helper()
	if err := h.db.One(context.Background(), heldCount.With(), &n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func TestHoldDestination(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.run()
		o := h.operator(true)
		later := h.send("later-ok@a.test", "ok@b.test")
		h.await(2)
		scheduled := h.message()
		scheduled.DueAt = h.clock.Now().Add(time.Hour)
		h.accept(scheduled, to("ok@a.test"))
		to1 := admin.Command{Filter: admin.Filter{Destination: "A.test."}, Reason: "they asked"}
		dry := to1
		dry.DryRun = true
		res, err := o.Hold(ctx, dry)
		h.did("a dry run", res, err, 2, 0, 0)
		res, err = o.Hold(ctx, to1)
		h.did("holding", res, err, 2, 2, 0)
		h.wantStates(later, "deferred delivered")
		// Future deliveries are held too, once the node has read the hold.
		h.attended(func() bool {
			m := h.send("ok@a.test")
			all, err := h.queue.Deliveries(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			return all[0].Held
		})
		no := false
		h.attended(func() bool { // mail sent before the node read the hold is delivered
			list, _, err := o.List(ctx, admin.Filter{Destination: "a.test", Held: &no}, "", 10)
			return err == nil && len(list) == 0
		})
		before := h.expiry(later)
		now := h.clock.Now()
		h.later(50 * time.Hour)
		res, err = o.Hold(ctx, to1)
		h.did("holding again", res, err, 0, 0, 0)
		holds, err := o.Holds(ctx)
		if err != nil || len(holds) != 1 || holds[0].Target != "a.test" || holds[0].Reason != "they asked" {
			t.Errorf("holds %+v, %v", holds, err)
		}
		held := h.heldRows()
		if held < 3 || h.owned() != held {
			t.Errorf("%d held, %d leased", held, h.owned())
		}
		// The account can cancel, retry and reschedule a held delivery like any other.
		cancelled := h.send("ok@a.test")
		if n, err := h.queue.Cancel(ctx, cancelled); n != 1 || err != nil {
			t.Error(n, err)
		}
		if n, err := h.queue.Retry(ctx, later); n != 1 || err != nil {
			t.Error(n, err)
		}
		if err := h.queue.Reschedule(ctx, scheduled.ID, h.clock.Now().Add(time.Minute), h.clock.Now().Add(72*time.Hour), nil); err != nil {
			t.Error(err)
		}
		h.wantStates(cancelled, "cancelled")
		res, err = o.Release(ctx, admin.Command{Filter: admin.Filter{Destination: "a.test"}})
		h.did("releasing", res, err, held, held, 0)
		if moved := h.expiry(later).Sub(before); moved != h.clock.Now().Sub(now) && moved < 50*time.Hour {
			t.Errorf("the expiry moved by %v", moved)
		}
		h.attended(func() bool { return h.states(later) == "delivered delivered" && h.states(scheduled.ID) == "delivered" })
		h.attended(func() bool {
			m := h.send("ok@a.test")
			all, err := h.queue.Deliveries(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			return !all[0].Held
		})
		h.attended(func() bool { return h.heldRows() == 0 })
		h.wantEvents(later, h.events(later)) // every event is complete
	})
}

// The operator works on the rows, and the node gets no signal: a running attempt keeps its outcome,
// and all other deliveries stay where they are.
func TestHoldInHand(t *testing.T) {
	began, finish := make(chan string), make(chan queue.Outcome)
	blocking := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		return []queue.Outcome{<-finish}
	}}
	eachFixture(t, blocking, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.run()
		o := h.operator(false)
		one := h.send("one@a.test")
		<-began
		two, three := h.send("two@a.test"), h.send("three@a.test")
		res, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Message: one}})
		h.did("what is carried", res, err, 1, 0, 1)
		res, err = o.Hold(ctx, admin.Command{Filter: admin.Filter{Message: two}})
		h.did("what is in memory", res, err, 1, 0, 1)
		h.clock.Add(2 * time.Second)
		finish <- deferred
		if got := <-began; got != "three@a.test" {
			t.Errorf("%s was carried", got)
		}
		finish <- delivered
		h.await(3)
		h.wantStates(one, "deferred")
		h.wantStates(two, "queued")
		h.wantStates(three, "delivered")
		if n := h.heldRows(); n != 2 {
			t.Errorf("%d held", n)
		}
		h.later(2 * time.Minute)
		res, err = o.Release(ctx, admin.Command{All: true})
		h.did("releasing", res, err, 2, 2, 0)
		h.later(6 * time.Second)
		for range 2 {
			<-began
			finish <- delivered
		}
		h.await(2)
		h.wantStates(one, "delivered")
		h.wantStates(two, "delivered")
		all, err := h.queue.Attempts(ctx, one)
		if err != nil || len(all) != 2 {
			t.Errorf("%d attempts, %v", len(all), err)
		}
	})
}

// A node with many deliveries in memory releases them even if no session asks for one.
func TestHoldLetsGo(t *testing.T) {
	began, finish := make(chan string), make(chan bool)
	blocking := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		<-finish
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, blocking, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.run()
		o := h.operator(false)
		h.send("one@a.test")
		<-began
		var waiting []db.ID
		for range 5 {
			waiting = append(waiting, h.send("x@a.test"))
		}
		res, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Account: h.account}, Reason: "a spammer"})
		// The node may poll by itself as soon as the hold exists. It then holds deliveries that the
		// command also finds held, or is about to hold.
		if err != nil || res.Matched < 1 || res.Matched > 6 || res.Leased < 1 || res.Changed+res.Leased != res.Matched {
			t.Errorf("an account: %+v, %v", res, err)
		}
		h.later(6 * time.Second)
		h.await(5)
		if n := h.heldRows(); n != 5 {
			t.Errorf("%d held", n)
		}
		finish <- true
		h.await(1)
		// No attempt is running any more, so Drop ends all of them.
		res, err = o.Drop(ctx, admin.Command{Filter: admin.Filter{Account: h.account}, Reason: "spam"})
		h.did("dropping", res, err, 5, 5, 0)
		for _, m := range waiting {
			h.wantStates(m, "failed")
			h.wantEvents(m, "delivery_status 1 failed")
		}
		all, err := h.queue.Deliveries(ctx, waiting[0])
		if err != nil || all[0].Reply != "Dropped by the operator of the service: spam" || all[0].Held {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// Leased deliveries of an ended node that were marked as held become held. No node takes over held
// ones.
func TestHoldSurvives(t *testing.T) {
	began := make(chan string, 10)
	stuck := &deliveryAgent{parallel: 1, answer: func(ctx context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		<-ctx.Done()
		return []queue.Outcome{deferred}
	}}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		h := newFixture(t, d, n, stuck)
		ctx := t.Context()
		held, marked := h.send("x@a.test"), h.send("x@b.test") // leased by a node that does not run
		o := h.operator(false)
		res, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Message: marked}})
		h.did("leased", res, err, 1, 0, 1)
		after := newFixture(t, d, h.next(), script())
		after.account = h.account
		after.run()
		o = after.operator(true)
		after.attended(func() bool { return after.heldRows() == 1 && after.owned() == 1 })
		after.attended(func() bool { return after.states(held) != "queued" && after.states(held) != "sending" })
		after.wantStates(marked, "queued")
		res, err = o.Hold(ctx, admin.Command{Filter: admin.Filter{Destination: "c.test"}})
		after.did("nothing yet", res, err, 0, 0, 0)
		after.end()
		if n := after.heldRows(); n != 1 {
			t.Errorf("%d held after the end", n)
		}
	})
}

// Deliveries of a removed hold are released, whichever process held them.
func TestOrphans(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		ctx := t.Context()
		o := h.operator(false)
		res, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Destination: "a.test"}})
		h.did("an active hold", res, err, 0, 0, 0)
		h.run()
		h.attended(func() bool { // the node has read the hold
			m := h.send("ok@a.test")
			all, err := h.queue.Deliveries(ctx, m)
			return err == nil && all[0].Held
		})
		dbtest.Exec(h.t, h.db, forgetHolds.With()) // without a signal to the node
		m := h.send("ok@a.test")
		h.attended(func() bool { return h.heldRows() == 0 && h.states(m) == "delivered" })
	})
}

var forgetHolds = db.SQL(`DELETE FROM queue_hold`)
