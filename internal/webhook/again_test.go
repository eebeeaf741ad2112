// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Any delivery can be redelivered, with the same id and body and the whole schedule.
func TestRedeliver(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, func(w http.ResponseWriter, r request) {
			if r.n == 2 {
				w.WriteHeader(500)
			}
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 1)
		first := r.next()
		id := h.outcome().event
		d, err := h.hooks.Redeliver(t.Context(), h.account, w.ID, id)
		if err != nil || d.State != webhook.Pending || d.Attempts > 2 { // the second attempt may have ended already
			t.Fatalf("%+v, %v", d, err)
		}
		second := r.next()
		h.outcome()
		d, attempts := h.delivery(w.ID, id)
		if wait := d.NextAt.Sub(attempts[1].StartedAt); d.State != webhook.Pending || d.Attempts != 2 || wait > time.Minute {
			t.Errorf("after a failure: %+v, the next in %v", d, wait)
		}
		if _, err := h.hooks.Redeliver(t.Context(), h.account, w.ID, id); err != nil { // at once, not by the schedule
			t.Fatal(err)
		}
		third := r.next()
		h.outcome()
		for _, again := range []request{second, third} {
			if !bytes.Equal(again.body, first.body) || again.Header.Get("X-Event-ID") != first.Header.Get("X-Event-ID") {
				t.Error("another body or id")
			}
		}
		d, attempts = h.delivery(w.ID, id)
		if d.State != webhook.Delivered || d.Attempts != 3 || len(attempts) != 3 || attempts[0].Code != 200 || attempts[1].Code != 500 || attempts[2].Code != 200 {
			t.Errorf("%+v, %+v", d, attempts)
		}
		if body, err := h.hooks.DeliveryBody(t.Context(), h.account, w.ID, id, true); err != nil || !bytes.Equal(body, first.body) {
			t.Errorf("body %s, %v", body, err)
		}
		for state, want := range map[string]int{"": 1, webhook.Delivered: 1, webhook.Pending: 0, webhook.Failed: 0} {
			if list, more, err := h.hooks.Deliveries(t.Context(), h.account, w.ID, state, db.Page{}); err != nil || more || len(list) != want {
				t.Errorf("%q: %+v, %v", state, list, err)
			}
		}
	})
}

// A replay delivers what a webhook missed, or everything again.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, nil)
		h.record(event.Bounce, 3) // before the webhook existed
		h.recordAll(h.newAccount(), func(i int) event.RecordParams { return event.RecordParams{Kind: event.Bounce, Data: data{i}} }, 3)
		h.newest()
		between := h.now()
		h.forward(time.Second)
		w, _ := h.create(r.URL, event.Bounce)
		h.record(event.Complaint, 2)
		h.record(event.Bounce, 700)
		for range 700 {
			h.outcome()
		}
		for _, c := range []struct {
			name    string
			since   time.Time
			missing bool
			want    int
		}{
			{"what it missed", between.Add(-time.Hour), true, 3},
			{"nothing is missing now", between.Add(-time.Hour), true, 0},
			{"everything since", between, false, 700},
			{"everything", time.Unix(0, 0), false, 703},
			{"the future", h.now().Add(time.Hour), false, 0},
		} {
			sent := r.n.Load()
			did, err := h.hooks.Replay(t.Context(), h.account, w.ID, c.since, c.missing)
			if err != nil || did.Deliveries != c.want || did.More || c.want > 0 && !did.Through.After(between.Add(-time.Minute)) {
				t.Fatalf("%s: %+v, %v", c.name, did, err)
			}
			for range c.want {
				h.outcome()
			}
			if n := r.n.Load() - sent; n != int64(c.want) {
				t.Errorf("%s: %d requests", c.name, n)
			}
		}
		disabled := webhook.StatusDisabled
		if _, err := h.hooks.Update(t.Context(), h.account, w.ID, webhook.Change{Status: &disabled}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.hooks.Replay(t.Context(), h.account, w.ID, between, false); !fault.Is(err, fault.Conflict) {
			t.Errorf("of a disabled one: %v", err)
		}
	})
}

// A replay over several calls omits nothing, although positions are not in the order of times.
func TestReplayGoesOn(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		w, _ := h.create(listen(t, nil).URL, event.Bounce)
		begin := h.now().Add(-time.Hour).Truncate(time.Second)
		late := func(position int, kind string, after time.Duration) db.Statement {
			at := begin.Add(after)
			return oneEvent.With(db.MinIDAt(at)+1, position, h.account, kind, db.Micros(at))
		}
		// 50,000 events that the webhook does not subscribe to, each a millisecond later, and after
		// them a bounce from half a second before the last one.
		dbtest.Exec(t, h.db, manyEvents.With(db.MinIDAt(begin), h.account, db.Micros(begin)),
			late(50_001, event.Bounce, 49_500*time.Millisecond), late(50_002, event.Complaint, time.Minute))
		did, err := h.hooks.Replay(t.Context(), h.account, w.ID, begin, false)
		if err != nil || did.Deliveries != 0 || !did.More {
			t.Fatalf("%+v, %v", did, err)
		}
		did, err = h.hooks.Replay(t.Context(), h.account, w.ID, did.Through, false)
		if err != nil || did.Deliveries != 1 || did.More {
			t.Fatalf("then %+v, %v", did, err)
		}
		h.outcome()
	})
}

var (
	manyEvents = db.SQL(`WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
		INSERT INTO event (id, position, account, kind, message, data, created_at, content)
		SELECT CAST($1 AS BIGINT) + i * 4194304, i, $2, 'complaint', 0, '{}', CAST($3 AS BIGINT) + i * 1000, 0 FROM n`)
	oneEvent       = db.SQL(`INSERT INTO event (id, position, account, kind, message, data, created_at, content) VALUES ($1, $2, $3, $4, 0, '{}', $5, 0)`)
	manyDeliveries = db.SQL(`WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
		INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, error, body, created_at, updated_at)
		SELECT $1, i, 'bounce', 'delivered', 1, 1, 0, 200, '', '', 0, 0 FROM n`)
	countAttempts = db.SQL(`SELECT COUNT(*) FROM webhook_attempt WHERE webhook = $1`)
	countHooks    = db.SQL(`SELECT (SELECT COUNT(*) FROM webhook WHERE id = $1) + (SELECT COUNT(*) FROM webhook_dispatch WHERE webhook = $1)`)
	dropEvents    = db.SQL(`DELETE FROM event`)
)

// Old deliveries are pruned with their attempts, also waiting ones.
func TestPrune(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		broken := false
		r := listen(t, func(w http.ResponseWriter, r request) {
			if broken {
				w.WriteHeader(500)
			}
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 25)
		for range 25 {
			h.outcome()
		}
		broken = true
		h.record(event.Bounce, 1)
		h.outcome()
		attempts := func() (n int) {
			t.Helper()
			if err := h.db.One(t.Context(), countAttempts.With(w.ID), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		prune := func(before time.Time) (total int) {
			t.Helper()
			for {
				n, err := h.hooks.Prune(t.Context(), before, 10)
				if err != nil || n > 10 {
					t.Fatal(n, err)
				}
				if total += n; n == 0 {
					return total
				}
			}
		}
		// Webhooks without old deliveries don't use the writer, which is locked here.
		if err := h.db.Tx(t.Context(), func(*db.Tx) error {
			if n := prune(h.now().Add(-time.Hour)); n != 0 {
				t.Errorf("pruned %d that are not old", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := prune(h.now().Add(time.Second)); n != 26 || attempts() != 0 || h.count(w.ID, "") != 0 {
			t.Errorf("pruned %d; %d attempts and %d deliveries are left", n, attempts(), h.count(w.ID, ""))
		}
		// A deleted event can't be sent any more.
		h.record(event.Bounce, 1)
		waiting := h.outcome().event
		dbtest.Exec(t, h.db, dropEvents.With())
		if _, err := h.hooks.Redeliver(t.Context(), h.account, w.ID, waiting); !fault.Is(err, fault.Conflict) {
			t.Errorf("an event that is gone was redelivered: %v", err)
		}
		h.forward(time.Minute)
		h.outcome()
		if d, _ := h.delivery(w.ID, waiting); d.State != webhook.Failed || d.Error != webhook.ErrorPruned {
			t.Errorf("%+v", d)
		}
		if err := h.hooks.Delete(t.Context(), h.account, w.ID); err != nil {
			t.Fatal(err)
		}
		h.forward(2 * time.Hour)
		if err := h.hooks.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := h.db.One(t.Context(), countHooks.With(w.ID), &left); err != nil || left+attempts()+h.count(w.ID, "") != 0 {
			t.Errorf("%d rows are left, %v", left, err)
		}
	})
}

// While the rows of a large deleted webhook are removed, other webhooks get their events.
func TestPurgeBesideOthers(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		h := build(t, url)
		gone, _ := h.create("http://127.0.0.1:9999/")
		dbtest.Exec(t, h.db, manyDeliveries.With(gone.ID))
		if err := h.hooks.Delete(t.Context(), h.account, gone.ID); err != nil {
			t.Fatal(err)
		}
		left := make(chan int, 1)
		h.create(listen(t, func(http.ResponseWriter, request) { left <- h.count(gone.ID, "") }).URL)
		h.record(event.Bounce, 1)
		h.run()
		if n := <-left; n == 0 {
			t.Error("it got its event when all was removed")
		}
		h.stop()
	})
}

// A delivery that is replayed between the commit of its outcome and its removal from the node's
// memory is delivered again.
func TestReplayOfWhatIsInHand(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, nil)
		h.create(r.URL)
		again := make(chan struct{}, 1)
		again <- struct{}{}
		h.hooks.Told(func(hook, id db.ID, _ string, _ error) {
			select {
			case <-again:
			default:
				return
			}
			did, err := h.hooks.Replay(t.Context(), h.account, hook, time.Now().Add(-time.Hour), false)
			if err != nil || did.Deliveries != 1 {
				t.Errorf("%+v %v", did, err)
			}
			for range 300 { // while the node polls
				if _, _, err := h.hooks.Delivery(t.Context(), h.account, hook, id); err != nil {
					t.Error(err)
				}
			}
		})
		h.record(event.Bounce, 1)
		first, second := r.next(), r.next()
		if first.Header.Get("X-Event-ID") != second.Header.Get("X-Event-ID") {
			t.Error("another event")
		}
	})
}
