// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
)

// operator returns an Admin in another process, like the command line: it sends the nodes no
// signals unless aloud is set.
func (h *fixture) operator(aloud bool) *admin.Queue {
	o := &admin.Queue{
		DB: h.db, Events: &event.Log{DB: h.db, Hub: &notify.Hub{}, Now: h.clock.Now}, Now: h.clock.Now,
		Describe: func(_ context.Context, id db.ID) (queue.MessageInfo, error) { return h.about(id), nil },
		LoadViews: func(_ context.Context, ids []db.ID) (map[db.ID]admin.MessageView, error) {
			all := map[db.ID]admin.MessageView{}
			for _, id := range ids {
				all[id] = admin.MessageView{From: "Al <al@from.test>", FromAddress: "al@from.test", Sender: "Bounce@list.test", Subject: "Hi"}
			}
			return all, nil
		},
	}
	if aloud {
		o.Wake = h.hub.Wake
	}
	return o
}

// did checks how many deliveries a command matched, changed and found leased.
func (h *fixture) did(what string, res admin.Result, err error, matched, changed, inHand int) {
	h.t.Helper()
	if err != nil || res.Matched != matched || res.Changed != changed || res.Leased != inHand {
		h.t.Errorf("%s: %+v, %v; want %d matched, %d changed, %d leased", what, res, err, matched, changed, inHand)
	}
}

// attended makes the queue poll until done reports true.
func (h *fixture) attended(done func() bool) {
	h.t.Helper()
	for !done() {
		h.later(6 * time.Second)
		h.hub.Wake(notify.Key{Kind: notify.Hold})
		if h.t.Context().Err() != nil {
			h.t.Fatal("in vain")
		}
	}
}

var (
	heldCount = db.SQL(`SELECT COUNT(*) FROM delivery WHERE lease = 0 AND hold > 0`)
	expiryOf  = db.SQL(`SELECT expires_at FROM delivery WHERE message = $1 AND n = 0`)
)

func (h *fixture) expiry(m db.ID) time.Time {
	h.t.Helper()
	var at int64
	if err := h.db.One(context.Background(), expiryOf.With(m), &at); err != nil {
		h.t.Fatal(err)
	}
	return db.Time(at)
}

// Drop while a node has leased all deliveries.
func TestDropInHand(t *testing.T) {
	began, finish := make(chan string), make(chan queue.Outcome)
	blocking := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		return []queue.Outcome{<-finish}
	}}
	eachFixture(t, blocking, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.submits = true
		h.run()
		o := h.operator(true)
		submission := func(who string) db.ID {
			m := h.message()
			m.NotifySender = true
			return h.accept(m, to(who))
		}
		one := submission("one@a.test")
		<-began
		two, other := submission("two@a.test"), submission("x@b.test")
		<-began // in an attempt to b.test
		res, err := o.Drop(ctx, admin.Command{Filter: admin.Filter{Destination: "a.test"}})
		if err != nil || res.Matched != 2 || res.Changed+res.Leased != 2 || res.Leased < 1 {
			t.Errorf("without waiting: %+v, %v", res, err)
		}
		waited := make(chan admin.Result)
		go func() {
			res, err := o.Drop(ctx, admin.Command{Filter: admin.Filter{Destination: "a.test"}, Wait: time.Minute, Silent: true})
			if err != nil {
				t.Error(err)
			}
			waited <- res
		}()
		h.attended(func() bool { return h.states(two) == "failed" })
		finish <- deferred // the outcome of either attempt
		finish <- deferred
		if res := <-waited; res.Leased != 0 {
			t.Errorf("after waiting: %+v", res)
		}
		h.wantStates(one, "failed")
		h.wantStates(two, "failed")
		h.wantStates(other, "deferred")
		all, err := h.queue.Attempts(ctx, one)
		if err != nil || len(all) != 1 {
			t.Errorf("the attempt is lost: %+v, %v", all, err)
		}
		h.wantEvents(one, "delivery_status 1 deferred, delivery_status 2 failed")
		if notices, _, _, err := h.queue.Notices(ctx, one); err != nil || len(notices) != 0 {
			t.Errorf("a silent drop tells %+v, %v", notices, err)
		}
		m := h.message()
		m.NotifySender = true
		m.DueAt = h.clock.Now().Add(time.Hour)
		h.accept(m, to("x@c.test", "y@c.test"))
		res, err = o.Drop(ctx, admin.Command{Filter: admin.Filter{Message: m.ID, State: queue.Scheduled}, Reason: "no\x00 more"})
		h.did("what is scheduled", res, err, 2, 2, 0)
		notices, _, _, err := h.queue.Notices(ctx, m.ID)
		if err != nil || len(notices) != 2 || notices[0].Action != queue.ActionFailed || notices[0].Reply != "Dropped by the operator of the service: no more" {
			t.Errorf("told %+v, %v", notices, err)
		}
	})
}

// An operator's retry also tries destinations in backoff.
func TestRetryPutOff(t *testing.T) {
	var dead atomic.Bool
	c := &deliveryAgent{parallel: 2, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if dead.Load() {
			return nil
		}
		return slices.Repeat([]queue.Outcome{delivered}, len(c.Deliveries))
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		dead.Store(true)
		h.run()
		o := h.operator(false)
		var all []db.ID
		for range 4 {
			all = append(all, h.send("x@a.test"))
			if len(all) == 1 {
				h.await(1) // the destination is then in backoff for the others
			}
		}
		list, next, err := o.Destinations(ctx, "", "", 10)
		if err != nil || next != "" || len(list) != 1 || list[0].Waiting != 4 || !list[0].Deferred || list[0].Reply != "connection refused" ||
			!list[0].NextAttemptAt.After(h.clock.Now()) || list[0].OldestAt.IsZero() || list[0].Leased+list[0].Held != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		dead.Store(false)
		res, err := o.Retry(ctx, admin.Command{Filter: admin.Filter{Destination: "a.test"}})
		h.did("retrying", res, err, 4, 4, 0)
		// Less than a minute has passed: without the retry request nothing would be sent.
		h.settledOf()
		h.clock.Add(6 * time.Second)
		h.hub.Wake(notify.Key{Kind: notify.Queue})
		h.awaitDelivered(4)
		for _, m := range all {
			h.wantStates(m, "delivered")
		}
		// A retry by message id also retries a failed delivery.
		failing := h.message()
		h.mu.Lock()
		h.denied[failing.ID] = fault.New(fault.Denied, "x", "Denied.")
		h.mu.Unlock()
		h.accept(failing, to("x@b.test", "y@b.test"))
		h.await(2)
		h.wantStates(failing.ID, "failed failed")
		h.mu.Lock()
		delete(h.denied, failing.ID)
		h.mu.Unlock()
		res, err = o.Retry(ctx, admin.Command{Filter: admin.Filter{Message: failing.ID}})
		h.did("what failed", res, err, 2, 2, 0)
		h.later(time.Second)
		h.awaitDelivered(2)
		h.wantEvents(failing.ID, h.events(failing.ID))
		if got := h.events(failing.ID); strings.Count(got, " 2 queued") != 2 || strings.Count(got, " 3 delivered") != 2 {
			t.Errorf("events %s", got)
		}
	})
}

func TestOrders(t *testing.T) {
	h := &fixture{}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h = newFixture(t, d, nil, nil)
		o := h.operator(false)
		for what, or := range map[string]admin.Command{
			"nothing chosen":  {},
			"both":            {All: true, Filter: admin.Filter{Destination: "a.test"}},
			"no domain":       {Filter: admin.Filter{Destination: "a b"}},
			"a state":         {Filter: admin.Filter{State: queue.Delivered}},
			"the future":      {Filter: admin.Filter{OlderThan: -time.Second}},
			"a long reason":   {All: true, Reason: strings.Repeat("x", 501)},
			"nothing at all!": {ExistingOnly: true},
			"no sender":       {Filter: admin.Filter{Sender: "a b"}},
			"a cursor":        {All: true, After: "nonsense"},
			"a cursor's end":  {All: true, After: "eyJsIjo5LCJwIjowfQ"}, // {"l":9,"p":0}
		} {
			for verb, do := range map[string]func(context.Context, admin.Command) (admin.Result, error){
				"hold": o.Hold, "release": o.Release, "retry": o.Retry, "drop": o.Drop,
			} {
				if _, err := do(t.Context(), or); !fault.Is(err, fault.Invalid) {
					t.Errorf("%s %s: %v", verb, what, err)
				}
			}
		}
		if _, _, err := o.List(t.Context(), admin.Filter{}, "nonsense", 10); !fault.Is(err, fault.Invalid) {
			t.Errorf("a bad cursor: %v", err)
		}
		if _, err := o.Show(t.Context(), 1); !fault.Is(err, fault.NotFound) {
			t.Errorf("no message: %v", err)
		}
	})
}

// Each list shows each delivery once, with every filter and any page size.
func TestOperatorLists(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n, err := lease.Join(t.Context(), d, lease.Options{Name: "lists", Holder: "lists"})
		if err != nil {
			t.Fatal(err)
		}
		h := newFixture(t, d, n, script(), func(o *queue.Options) { o.Window = 2 }) // it does not run
		ctx := t.Context()
		o := h.operator(false)
		other := d.NewID()
		for i := range 12 {
			m := h.message()
			if i%2 == 1 {
				m.Account = other
			}
			if i%6 == 0 {
				m.DueAt = h.clock.Now().Add(time.Hour)
			}
			h.accept(m, to(fmt.Sprintf("x@d%d.test", i%3), fmt.Sprintf("y@d%d.test", i%3)))
		}
		res, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Destination: "d1.test", Account: h.account}})
		h.did("some", res, err, 4, 4, 0)
		count := func(f admin.Filter, want int) {
			t.Helper()
			for _, page := range []int{1, 3, 7, 100} {
				seen := map[string]bool{}
				after, pages := "", 0
				for {
					list, next, err := o.List(ctx, f, after, page)
					if err != nil || len(list) > page || pages > 100 {
						t.Fatal(len(list), err)
					}
					for _, e := range list {
						who := fmt.Sprint(e.Message, e.N)
						if seen[who] || e.View.Subject != "Hi" {
							t.Errorf("%+v: %+v twice", f, e)
						}
						seen[who] = true
					}
					if after = next; next == "" {
						break
					}
					pages++
				}
				if len(seen) != want {
					t.Errorf("%+v in pages of %d: %d, want %d", f, page, len(seen), want)
				}
			}
		}
		yes, no := true, false
		all, _, err := o.List(ctx, admin.Filter{}, "", 100)
		if err != nil || len(all) != 24 {
			t.Fatalf("%d of 24, %v", len(all), err)
		}
		hand := 0
		for _, e := range all {
			if e.State == queue.Sending {
				hand++
			}
		}
		if hand < 3 {
			t.Errorf("%d leased", hand)
		}
		count(admin.Filter{}, 24)
		count(admin.Filter{Destination: "d1.test"}, 8)
		count(admin.Filter{Account: other}, 12)
		count(admin.Filter{Account: other, Destination: "d1.test"}, 4)
		count(admin.Filter{Account: d.NewID()}, 0)
		count(admin.Filter{State: queue.Scheduled}, 4)
		count(admin.Filter{State: queue.Sending}, hand)
		count(admin.Filter{State: queue.Deferred}, 0)
		count(admin.Filter{Held: &yes}, 4)
		count(admin.Filter{Held: &no}, 20)
		count(admin.Filter{Held: &yes, Destination: "d1.test"}, 4)
		count(admin.Filter{Held: &yes, Account: h.account}, 4)
		count(admin.Filter{Message: all[0].Message}, 2)
		count(admin.Filter{Message: all[0].Message, Destination: "nowhere.test"}, 0)
		count(admin.Filter{Message: d.NewID()}, 0)
		count(admin.Filter{Sender: "AL@from.test"}, 24)
		count(admin.Filter{Sender: "@from.test"}, 24)
		count(admin.Filter{Sender: "list.test"}, 24)
		count(admin.Filter{Sender: "bob@from.test"}, 0)
		count(admin.Filter{OlderThan: time.Since(h.clock.Now()) + 24*time.Hour}, 0)

		names, next, err := o.Destinations(ctx, "", "", 2)
		if err != nil || next != "d1.test" || len(names) != 2 || names[1].Held != 4 {
			t.Errorf("%+v, %q, %v", names, next, err)
		}
		rest, next, err := o.Destinations(ctx, "", next, 2)
		if err != nil || next != "" || len(rest) != 1 || rest[0].Destination != "d2.test" {
			t.Errorf("%+v, %q, %v", rest, next, err)
		}
		for _, x := range append(names, rest...) {
			if x.Waiting+x.Held+x.Leased != 8 || x.OldestAt.IsZero() {
				t.Errorf("%+v", x)
			}
		}
		one, _, err := o.Destinations(ctx, "d2.test", "", 1)
		if err != nil || len(one) != 1 || one[0].Waiting != rest[0].Waiting {
			t.Errorf("%+v, %v", one, err)
		}
		shown, err := o.Show(ctx, all[0].Message)
		if err != nil || len(shown.Deliveries) != 2 || shown.View.Subject != "Hi" || shown.Account == 0 || shown.Status == "" {
			t.Errorf("%+v, %v", shown, err)
		}
	})
}

// Operators and two nodes at the same time: no delivery is lost, no dropped delivery is attempted,
// and in the end each is delivered or dropped.
func TestOperatorsRace(t *testing.T) {
	const messages = 150
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		var mu sync.Mutex
		carried := map[db.ID]int{}
		c := &deliveryAgent{parallel: 2, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
			mu.Lock()
			defer mu.Unlock()
			carried[c.Mail.ID]++
			if carried[c.Mail.ID] == 1 && c.Mail.ID%3 == 0 {
				return []queue.Outcome{deferred}
			}
			return []queue.Outcome{delivered}
		}}
		small := func(o *queue.Options) { o.Window = 8 }
		h := newFixture(t, d, n, c, small).run()
		other, err := lease.Join(t.Context(), d, lease.Options{Name: "other", Holder: "elsewhere"})
		if err != nil {
			t.Fatal(err)
		}
		second := newFixture(t, d, other, c, small, func(o *queue.Options) { o.Now = h.clock.Now })
		second.account = h.account
		second.run()
		o := h.operator(true)
		var ids []db.ID
		var group sync.WaitGroup
		stop := make(chan struct{})
		for _, verb := range []func() error{
			func() error {
				_, err := o.Hold(t.Context(), admin.Command{Filter: admin.Filter{Destination: "a.test"}})
				return err
			},
			func() error { _, err := o.Release(t.Context(), admin.Command{All: true}); return err },
			func() error {
				_, err := o.Retry(t.Context(), admin.Command{All: true})
				return err
			},
			func() error {
				_, err := o.Hold(t.Context(), admin.Command{All: true, ExistingOnly: true})
				return err
			},
		} {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := verb(); err != nil {
						t.Error(err)
						return
					}
					h.clock.Add(time.Second)
				}
			})
		}
		for i := range messages {
			m := h.message()
			m.ExpiresAt = h.clock.Now().Add(10_000 * time.Hour)
			from := h
			if i%2 == 1 {
				from = second
			}
			if err := from.try(m, to(fmt.Sprintf("x@%c.test", 'a'+i%3))); err != nil {
				t.Error(err)
			}
			ids = append(ids, m.ID)
			if i%10 == 0 {
				if _, err := o.Drop(t.Context(), admin.Command{Filter: admin.Filter{Message: m.ID}}); err != nil {
					t.Error(err)
				}
			}
		}
		close(stop)
		group.Wait()
		if _, err := o.Release(t.Context(), admin.Command{All: true}); err != nil {
			t.Fatal(err)
		}
		final := func() bool {
			second.later(0)
			second.hub.Wake(notify.Key{Kind: notify.Hold})
			for _, id := range ids {
				if s := queue.State(h.states(id)); !s.Final() {
					return false
				}
			}
			return true
		}
		for !final() {
			h.later(time.Minute)
			h.hub.Wake(notify.Key{Kind: notify.Hold})
			if _, err := o.Release(t.Context(), admin.Command{All: true}); err != nil { // deliveries that Drop did not wait for
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			tries, state := carried[id], h.states(id)
			all, err := h.queue.Attempts(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			most := 1
			if id%3 == 0 {
				most = 2
			}
			if tries > most || len(all) != tries || state == "delivered" && tries == 0 || state == "failed" && tries == most {
				t.Errorf("%d is %s, was carried %d times, %d attempts are known", id, state, tries, len(all))
			}
		}
	})
}
