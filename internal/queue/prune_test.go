// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

var (
	plantDelivery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at,
			lease, attempts, sequence, code, enhanced, reply, remote_host, updated_at)
		VALUES ($1, $2, 1, 'a@b.test', 'to', 'b.test', $3, 0, 0, NULL, 0, 0, 0, '', '', '', $4)`)
	plantAttempt = db.SQL(`INSERT INTO attempt (message, n, attempt, started_at, duration_us, outcome, host, ip, tls, stage, code, enhanced, reply, transcript)
		VALUES ($1, $2, $3, 0, 0, '', '', '', '', '', 0, '', '', '')`)
	leftAttempts = db.SQL(`SELECT message, n, attempt FROM attempt`)
)

// Pruning deletes attempts of long-finished deliveries in bounded commits, and leaves all others.
func TestPruneAttempts(t *testing.T) {
	eachFixture(t, nil, func(t *testing.T, h *fixture) {
		random := rand.New(rand.NewPCG(1, 2))
		now := h.clock.Now()
		before := now.Add(-30 * 24 * time.Hour)
		type attempt struct {
			message db.ID
			n, a    int
		}
		want, gone := map[attempt]bool{}, 0
		states := []queue.State{queue.Delivered, queue.Bounced, queue.Complained, queue.Suppressed, queue.Failed, queue.Cancelled, queue.Scheduled, queue.Queued, queue.Deferred}
		err := h.db.Tx(t.Context(), func(tx *db.Tx) error {
			for range 150 {
				at := now.Add(-time.Duration(random.Int64N(int64(60 * 24 * time.Hour))))
				id := db.MinIDAt(at) + db.ID(random.IntN(4000))
				for n := range 2 {
					state := states[random.IntN(len(states))]
					updated := at.Add(time.Duration(random.Int64N(int64(now.Sub(at)))))
					if _, err := tx.Exec(t.Context(), plantDelivery.With(id, n, string(state), db.Micros(updated))); err != nil {
						return err
					}
					for a := range random.IntN(4) {
						if _, err := tx.Exec(t.Context(), plantAttempt.With(id, n, a+1)); err != nil {
							return err
						}
						if state.Final() && at.Before(before) && updated.Before(before) {
							gone++
						} else {
							want[attempt{id, n, a + 1}] = true
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for {
			n, err := h.queue.PruneAttempts(t.Context(), before, 7)
			if err != nil || n > 7 {
				t.Fatal(n, err)
			}
			if total += n; n == 0 {
				break
			}
		}
		if total != gone || gone == 0 {
			t.Errorf("pruned %d, want %d", total, gone)
		}
		left := 0
		if err := h.db.Each(t.Context(), leftAttempts.With(), func(r db.Row) error {
			var a attempt
			err := r.Scan(&a.message, &a.n, &a.a)
			if left++; !want[a] {
				t.Errorf("%v is left", a)
			}
			return err
		}); err != nil || left != len(want) {
			t.Errorf("%d are left, want %d; %v", left, len(want), err)
		}
	})
}

// A complaint about a deleted delivery suppresses its recipient and records one event.
func TestComplainedPast(t *testing.T) {
	eachFixture(t, nil, func(t *testing.T, h *fixture) {
		to, err := address.Parse("Gone@b.test")
		if err != nil {
			t.Fatal(err)
		}
		id := h.db.NewID()
		for n := range 2 {
			news, err := h.queue.RecordComplaintOfDeleted(t.Context(), id, 0, to, queue.Report{Text: "abuse", Remote: "fbl.test"})
			if err != nil || news != (n == 0) {
				t.Errorf("the %d. time: %v, %v", n+1, news, err)
			}
		}
		if got := h.events(id); strings.Count(got, "complaint") != 1 || strings.Contains(got, "delivery_status") {
			t.Errorf("the events: %s", got)
		}
	})
}

// A bounce report about a deleted delivery can still suppress its recipient, by the same rules.
func TestBouncedPast(t *testing.T) {
	eachFixture(t, nil, func(t *testing.T, h *fixture) {
		to, err := address.Parse("Gone@b.test")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			report queue.Report
			listed bool
		}{
			{queue.Report{Code: 550, Enhanced: "5.7.1", Text: "policy"}, false},
			{queue.Report{Code: 450, Enhanced: "4.1.1", Text: "gave up"}, false},
			{queue.Report{Enhanced: "5.1.1", Text: "smtp; 550 5.1.1 no such user"}, true},
			{queue.Report{Enhanced: "5.1.1"}, false}, // already on the list
		} {
			listed, err := h.queue.RecordBounceOfDeleted(t.Context(), h.account, h.db.NewID(), 0, to, c.report)
			if err != nil || listed != c.listed {
				t.Errorf("%+v: %v, %v", c.report, listed, err)
			}
		}
	})
}
