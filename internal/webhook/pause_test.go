// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/webhook"
)

// connect lets two nodes wake each other.
func connect(t *testing.T, one, two *fixture) {
	t.Helper()
	if one.db.Engine() == db.SQLite {
		two.useHub(one.hub)
		return
	}
	log := slog.New(slog.DiscardHandler)
	for _, h := range []*fixture{one, two} {
		ctx, cancel := context.WithCancel(context.Background())
		hub := notify.NewHub(ctx, h.db, log)
		h.useHub(hub)
		listening, ended := make(chan struct{}, 100), make(chan error, 1)
		go func() {
			ended <- hub.Listen(ctx, h.db, log, func(notify.Key) {}, func() { listening <- struct{}{} })
		}()
		<-listening
		t.Cleanup(func() {
			h.stop()
			hub.Flush()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// A pause ends at once by a redelivery, a replay, a successful test or a change of the webhook,
// although another node sends its deliveries.
func TestPauseEnds(t *testing.T) {
	change := func(c webhook.Change) func(*fixture, webhook.Webhook, db.ID) error {
		return func(h *fixture, w webhook.Webhook, _ db.ID) error {
			_, err := h.hooks.Update(h.t.Context(), h.account, w.ID, c)
			return err
		}
	}
	for name, end := range map[string]func(h *fixture, w webhook.Webhook, waiting db.ID) error{
		"redelivery": func(h *fixture, w webhook.Webhook, waiting db.ID) error {
			d, err := h.hooks.Redeliver(h.t.Context(), h.account, w.ID, waiting)
			if err == nil && d.NextAt.After(h.now()) {
				h.t.Errorf("redelivered: %+v", d)
			}
			return err
		},
		"replay": func(h *fixture, w webhook.Webhook, _ db.ID) error {
			_, err := h.hooks.Replay(h.t.Context(), h.account, w.ID, h.now().Add(-time.Hour), false)
			return err
		},
		"test": func(h *fixture, w webhook.Webhook, _ db.ID) error {
			_, a, err := h.hooks.Test(h.t.Context(), h.account, w.ID, event.Bounce)
			if err == nil && a.Error != "" {
				h.t.Errorf("the test: %+v", a)
			}
			return err
		},
		"URL": func(h *fixture, w webhook.Webhook, waiting db.ID) error {
			return change(webhook.Change{URL: new(w.URL + "/other")})(h, w, waiting)
		},
		"description": change(webhook.Change{Description: new("mended")}),
		"secret": func(h *fixture, w webhook.Webhook, _ db.ID) error {
			_, _, err := h.hooks.RotateSecret(h.t.Context(), h.account, w.ID, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.EachURL(t, func(t *testing.T, url string) {
				one, two := pair(t, url)
				connect(t, one, two)
				var healed atomic.Bool
				r := listen(t, func(w http.ResponseWriter, _ request) {
					if !healed.Load() {
						w.Header().Set("Retry-After", "3600")
						w.WriteHeader(503)
					}
				})
				others := 1 // deliveries that are due at the end of the pause, besides one
				if name == "replay" {
					one.record(event.Bounce, 1)
					one.newest() // the webhook missed it
					others++
				}
				w, _ := one.create(r.URL)
				one.run()
				one.record(event.Bounce, 3) // two of them are due at once, but for the pause
				r.next()
				first := one.outcome().event
				waiting := one.newest()
				for _, h := range []*fixture{one, two} {
					is := h.hook(w.ID)
					if wait := is.PausedUntil.Sub(h.now()); wait < 59*time.Minute || wait > time.Hour || is.FailingSince.IsZero() {
						t.Errorf("paused for %v: %+v", wait, is)
					}
					if d, _ := h.delivery(w.ID, waiting); !d.NextAt.Equal(is.PausedUntil) {
						t.Errorf("paused until %v, the next attempt is at %v", is.PausedUntil, d.NextAt)
					}
					list, _, err := h.hooks.Deliveries(t.Context(), h.account, w.ID, webhook.Pending, db.Page{})
					if err != nil || len(list) != 3 {
						t.Fatalf("%+v, %v", list, err)
					}
					for _, d := range list {
						if d.NextAt.Before(is.PausedUntil) {
							t.Errorf("paused until %v: %+v", is.PausedUntil, d)
						}
					}
				}
				healed.Store(true)
				if err := end(two, w, waiting); err != nil {
					t.Fatal(err)
				}
				if name == "test" {
					r.next()
				}
				sent := r.next().Header.Get("X-Event-ID")
				if name == "redelivery" && sent != waiting.String() {
					t.Error("another delivery was tried before the one that was asked for")
				}
				one.outcome()
				for range others {
					if r.next().Header.Get("X-Event-ID") == first.String() {
						t.Error("a delivery was tried before it was due")
					}
					one.outcome()
				}
				for _, h := range []*fixture{one, two} {
					if w := h.hook(w.ID); !w.PausedUntil.IsZero() || !w.FailingSince.IsZero() {
						t.Errorf("after a success: %+v", w)
					}
				}
				if d, _ := two.delivery(w.ID, first); d.State != webhook.Pending || d.NextAt.Sub(two.now()) < 59*time.Minute {
					t.Errorf("what the receiver put off is due: %+v", d)
				}
			})
		})
	}
}

// A redelivery that fails pauses the webhook again and doesn't hide since when it fails. One that
// begins while another attempt is failing is not paused by that.
func TestRedeliverWhileFailing(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		begun, open := make(chan struct{}), make(chan struct{})
		r := listen(t, func(w http.ResponseWriter, r request) {
			switch r.n {
			case 2:
				close(begun)
				<-open
			case 3: // without Retry-After
				w.WriteHeader(500)
				return
			}
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 1)
		first := h.outcome().event
		since := h.hook(w.ID).FailingSince
		redeliver := func(id db.ID) {
			t.Helper()
			if _, err := h.hooks.Redeliver(t.Context(), h.account, w.ID, id); err != nil {
				t.Fatal(err)
			}
		}
		redeliver(first)
		<-begun
		h.record(event.Bounce, 1)
		second := h.newest()
		redeliver(second)
		close(open)
		if o := h.outcome(); o.event != first {
			t.Errorf("%v ended before %v", o.event, first)
		}
		if o := h.outcome(); o.event != second {
			t.Errorf("%v was tried instead of %v", o.event, second)
		}
		if is := h.hook(w.ID); !is.PausedUntil.IsZero() || !is.FailingSince.Equal(since) {
			t.Errorf("after two failures: %+v, failing since %v before", is, since)
		}
		redeliver(second)
		h.outcome()
		if is := h.hook(w.ID); is.PausedUntil.IsZero() || !is.FailingSince.Equal(since) {
			t.Errorf("after a failure with Retry-After: %+v, failing since %v before", is, since)
		}
	})
}

// A disabled webhook has no pause, and its deliveries no next attempt.
func TestDisabledWhilePaused(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, func(w http.ResponseWriter, _ request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 1)
		id := h.outcome().event
		disabled := webhook.StatusDisabled
		is, err := h.hooks.Update(t.Context(), h.account, w.ID, webhook.Change{Status: &disabled})
		if err != nil || !is.PausedUntil.IsZero() {
			t.Errorf("%+v, %v", is, err)
		}
		if d, _ := h.delivery(w.ID, id); d.State != webhook.Pending || !d.NextAt.IsZero() {
			t.Errorf("%+v", d)
		}
	})
}
