// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
)

// A command in parts has the same effect as one without a limit. Each part reads few rows, and a
// hold that was released in between stays released.
func TestOrdersInParts(t *testing.T) {
	const messages = 900
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n, err := lease.Join(t.Context(), d, lease.Options{Name: "parts", Holder: "parts"})
		if err != nil {
			t.Fatal(err)
		}
		h := newFixture(t, d, n, script(), func(o *queue.Options) { o.Window = 40 }) // it does not run
		ctx := t.Context()
		for i := range messages {
			h.send(fmt.Sprintf("x@d%d.test", i%2))
		}
		o := h.operator(false)
		parts := func(do func(context.Context, admin.Command) (admin.Result, error), or admin.Command) (sum admin.Result, parts int) {
			t.Helper()
			or.Limit = 200
			for {
				res, err := do(ctx, or)
				if err != nil || res.Changed > 400 {
					t.Fatal(res, err)
				}
				parts++
				sum.Matched, sum.Changed, sum.Leased, sum.StillHeld = sum.Matched+res.Matched, sum.Changed+res.Changed, sum.Leased+res.Leased, sum.StillHeld+res.StillHeld
				if or.After = res.Next; or.After == "" {
					return sum, parts
				}
			}
		}
		want := func(what string, res admin.Result, n, matched, changed, inHand int) {
			t.Helper()
			h.did(what, res, nil, matched, changed, inHand)
			if n < 2 {
				t.Errorf("%s: in %d parts", what, n)
			}
		}
		res, err := o.Hold(ctx, admin.Command{All: true, DryRun: true})
		h.did("counting", res, err, messages, 0, 0)
		hand := h.owned()
		res, n1 := parts(o.Retry, admin.Command{All: true})
		want("retrying", res, n1, messages-hand, messages-hand, 0)
		res, n1 = parts(o.Hold, admin.Command{Filter: admin.Filter{Destination: "d0.test"}})
		want("holding", res, n1, messages/2, messages/2-40, 40)

		first, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Destination: "d1.test"}, Limit: 200})
		if err != nil || first.Next == "" {
			t.Fatal(first, err)
		}
		released, n1 := parts(o.Release, admin.Command{Filter: admin.Filter{Destination: "d1.test"}})
		want("releasing", released, n1, first.Changed+first.Leased, first.Changed+first.Leased, 0)
		if _, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Destination: "d1.test"}, Limit: 200, After: first.Next}); !fault.Is(err, fault.Conflict) {
			t.Errorf("going on with a hold that has ended: %v", err)
		}
		if holds, err := o.Holds(ctx); err != nil || len(holds) != 1 || holds[0].Target != "d0.test" {
			t.Errorf("holds %+v, %v", holds, err)
		}
		res, n1 = parts(o.Drop, admin.Command{Filter: admin.Filter{Sender: "list.test"}})
		if n1 < 3 || res.Changed != messages-hand || res.Matched < messages {
			t.Errorf("dropping: %+v in %d parts", res, n1)
		}
	})
}

// Held deliveries don't expire, and are delivered after their release.
func TestHeldDoesNotExpire(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.run()
		o := h.operator(true)
		first, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Account: h.account}})
		h.did("an active hold", first, err, 0, 0, 0)
		var m db.ID
		h.attended(func() bool {
			m = h.send("ok@a.test")
			all, err := h.queue.Deliveries(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			return all[0].Held
		})
		h.later(1000 * time.Hour)
		h.attended(func() bool { return true })
		h.wantStates(m, "queued")
		if _, err := o.Release(ctx, admin.Command{Filter: admin.Filter{Account: h.account}}); err != nil {
			t.Fatal(err)
		}
		h.attended(func() bool { return h.states(m) == "delivered" })
	})
}

// If the nodes get the operator's signal, they try a dead destination at once: the clock does not
// move.
func TestRetryIsHeard(t *testing.T) {
	for _, destinations := range []int{1, 201} { // 201: more than are listed by name
		var dead atomic.Bool
		c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
			if dead.Load() {
				return nil
			}
			return slices.Repeat([]queue.Outcome{delivered}, len(c.Deliveries))
		}}
		eachFixture(t, c, func(t *testing.T, h *fixture) {
			dead.Store(true)
			h.run()
			var all []db.ID
			for i := range destinations {
				all = append(all, h.send(fmt.Sprintf("x@d%d.test", i)))
			}
			h.await(destinations)
			dead.Store(false)
			res, err := h.operator(true).Retry(t.Context(), admin.Command{All: true})
			h.did("retrying", res, err, destinations, destinations, 0)
			h.awaitDelivered(destinations)
			for _, m := range all {
				h.wantStates(m, "delivered")
			}
		})
	}
}
