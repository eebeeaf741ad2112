// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	aDelivery = db.SQL(`INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, error, body, created_at, updated_at)
		VALUES ($1, $2, 'bounce', 'pending', 0, 0, 1, 0, '', '', 1, 1)`)
)

// A success that is written before an earlier failure still closes the circuit.
func TestSettledOutOfOrder(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		ctx, account := t.Context(), testkit.AddAccount(t, d)
		h := New(Options{
			DB: d, Node: node, Hub: &notify.Hub{}, Key: testkit.Key(t), Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Dialer: &egress.Dialer{AllowNets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		})
		w, _, err := h.Create(ctx, account, Spec{URL: "http://127.0.0.1:9999", Kinds: []string{event.Bounce}})
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, d, aDelivery.With(w.ID, 1), aDelivery.With(w.ID, 2), wakeDispatchQuery.With(w.ID, db.Micros(time.Now())))
		lease, _ := node.Lease()
		batchers, err := h.claimDue(ctx, lease, time.Now(), 1)
		if err != nil || len(batchers) != 1 || !batchers[0].reload(ctx) {
			t.Fatal(batchers, err)
		}
		l, now := batchers[0], time.Now()
		land := func(id db.ID, code int) *outcome {
			a := httpResult{startedAt: now, endedAt: now, headers: "{}", code: code}
			a.errorCode, a.detail = classifyStatus(code)
			return l.evaluate(finishedAttempt{item: windowDelivery{id: id, kind: event.Bounce}, generation: l.generation, result: a})
		}
		failure, success := land(1, 500), land(2, 200)
		for _, o := range []*outcome{success, failure} {
			if err := h.writeOutcome(w.ID, o); err != nil {
				t.Fatal(err)
			}
		}
		if w, err = h.Get(ctx, account, w.ID); err != nil || !w.FailingSince.IsZero() {
			t.Errorf("failing since %v, %v", w.FailingSince, err)
		}
	})
}
