// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/webhook"
)

// A failed delivery is tried again by the schedule, each time with the same id and bytes and a new
// signature, until the schedule is over.
func TestSchedule(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, func(w http.ResponseWriter, r request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte("broken\x00\x1b[31m \xff" + strings.Repeat("é", 3000)))
		})
		w, secret := h.create(r.URL)
		h.record(event.Bounce, 1)
		var first request
		for n := 1; n <= len(webhook.Delays); n++ {
			got, o := r.next(), h.outcome()
			if n == 1 {
				first = got
			}
			if !bytes.Equal(got.body, first.body) || got.Header.Get("X-Event-ID") != first.Header.Get("X-Event-ID") {
				t.Fatalf("attempt %d: another body or id", n)
			}
			if verify(secret, got.Header, got.body) != nil || standard(secret, got.Header, got.body) != nil {
				t.Errorf("attempt %d: not signed", n)
			}
			d, attempts := h.delivery(w.ID, o.event)
			a := attempts[len(attempts)-1]
			if d.Attempts != n || len(attempts) != n || a.Number != n || a.Code != 500 || a.Error != webhook.ErrorStatus || a.Detail == "" {
				t.Fatalf("attempt %d: %+v, %+v", n, d, a)
			}
			if len(a.Response) > 2048 || !strings.HasPrefix(a.Response, "broken[31m é") {
				t.Errorf("attempt %d: response %q", n, a.Response)
			}
			if n == len(webhook.Delays) {
				if d.State != webhook.Failed || !d.NextAt.IsZero() || !a.NextAt.IsZero() {
					t.Errorf("after the last attempt: %+v", d)
				}
				break
			}
			wait := d.NextAt.Sub(a.StartedAt.Add(a.Duration))
			if least := webhook.Delays[n]; d.State != webhook.Pending || wait < least-time.Millisecond || wait > least*11/10+time.Millisecond {
				t.Errorf("after attempt %d: %s, the next in %v", n, d.State, wait)
			}
			if at := a.StartedAt.Unix(); got.Header.Get("X-Service-Timestamp") != strconv.FormatInt(at, 10) {
				t.Errorf("attempt %d at %d has timestamp %s", n, at, got.Header.Get("X-Service-Timestamp"))
			}
			h.forward(time.Until(d.NextAt) - time.Duration(h.ahead.Load()) + time.Second)
		}
		if w := h.hook(w.ID); w.Status != webhook.StatusEnabled || w.FailingSince.IsZero() {
			t.Errorf("webhook %+v", w)
		}
	})
}

// The receiver may request a later attempt, for all waiting deliveries.
func TestRetryAfter(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		header := make(chan string, 1)
		r := listen(t, func(w http.ResponseWriter, r request) {
			w.Header().Set("Retry-After", <-header)
			w.WriteHeader(503)
		})
		w, _ := h.create(r.URL)
		for i, c := range []struct {
			header      string
			least, most time.Duration
		}{
			{"3600", time.Hour, time.Hour},
			{"1", 5 * time.Second, 6 * time.Second}, // earlier than the schedule: the schedule counts
			{"999999999999999999999999", 24 * time.Hour, 24 * time.Hour},
			{"date", 2*time.Hour - 2*time.Second, 2 * time.Hour},
			{"soon", 5 * time.Second, 6 * time.Second},
		} {
			if c.header == "date" {
				c.header = h.now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)
			}
			header <- c.header
			h.record(event.Bounce, 1)
			r.next()
			o := h.outcome()
			d, attempts := h.delivery(w.ID, o.event)
			a := attempts[0]
			if wait := d.NextAt.Sub(a.StartedAt.Add(a.Duration)); len(attempts) != 1 || wait < c.least-time.Millisecond || wait > c.most+time.Millisecond {
				t.Errorf("%d: Retry-After %q: the next try in %v", i, c.header, wait)
			}
			// Disabling and enabling the webhook ends its pause.
			enabled, disabled := webhook.StatusEnabled, webhook.StatusDisabled
			for _, status := range []*string{&disabled, &enabled} {
				if _, err := h.hooks.Update(t.Context(), h.account, w.ID, webhook.Change{Status: status}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestRetryAfterText(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, " 86400 ": 24 * time.Hour, "86401": 24 * time.Hour, "-5": 0, "1.5": 0, "x": 0,
		"Mon, 04 May 2026 03:03:01 GMT": time.Minute, "Mon, 04 May 2026 03:00:01 GMT": 0, "Mon, 04 May 2027 03:03:01 GMT": 24 * time.Hour,
		"Monday, 04-May-26 03:03:01 GMT": time.Minute, strings.Repeat("9", 100): 0,
	} {
		if got := webhook.RetryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Only 2xx is success, and redirects are not followed.
func TestStatus(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		elsewhere := listen(t, nil)
		codes := []int{200, 201, 204, 299, 301, 307, 400, 404, 429, 500}
		r := listen(t, func(w http.ResponseWriter, r request) {
			if r.n <= len(codes) {
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(codes[r.n-1])
			}
		})
		w, _ := h.create(r.URL)
		for _, code := range codes {
			h.record(event.Bounce, 1)
			r.next()
			d, attempts := h.delivery(w.ID, h.outcome().event)
			want, trouble := webhook.Pending, webhook.ErrorStatus
			switch code / 100 {
			case 2:
				want, trouble = webhook.Delivered, ""
			case 3:
				trouble = webhook.ErrorRedirect
			}
			if d.State != want || d.Code != code || d.Error != trouble || attempts[0].Error != trouble || (attempts[0].Detail == "") != (trouble == "") {
				t.Errorf("%d: %+v", code, d)
			}
		}
		if n := elsewhere.n.Load(); n != 0 {
			t.Errorf("%d redirects were followed", n)
		}
	})
}

// 410 disables the webhook. Waiting deliveries stay, and continue when it is enabled.
func TestGone(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		gone := true
		r := listen(t, func(w http.ResponseWriter, r request) {
			if gone {
				w.WriteHeader(http.StatusGone)
			}
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 1)
		r.next()
		o := h.outcome()
		is := h.hook(w.ID)
		if is.Status != webhook.StatusDisabled || is.Reason != webhook.ReasonGone || is.StatusAt.Before(w.StatusAt) {
			t.Fatalf("after 410: %+v", is)
		}
		if d, _ := h.delivery(w.ID, o.event); d.State != webhook.Pending || d.Error != webhook.ErrorGone {
			t.Errorf("delivery %+v", d)
		}
		h.record(event.Bounce, 1) // creates no delivery
		h.newest()
		if _, err := h.hooks.Redeliver(t.Context(), h.account, w.ID, o.event); err == nil {
			t.Error("a disabled webhook redelivers")
		}
		gone = false
		h.forward(time.Minute)
		enabled := webhook.StatusEnabled
		is, err := h.hooks.Update(t.Context(), h.account, w.ID, webhook.Change{Status: &enabled})
		if err != nil || is.Status != webhook.StatusEnabled || is.Reason != "" || !is.FailingSince.IsZero() {
			t.Fatalf("%+v, %v", is, err)
		}
		if got := r.next(); got.Header.Get("X-Event-ID") != o.event.String() {
			t.Errorf("got %s first", got.body)
		}
		h.outcome()
		h.nothingElse(r)
	})
}

// A webhook is disabled after every attempt has failed for five days, and not before. One success
// restarts the count.
func TestFailing(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		working := true
		r := listen(t, func(w http.ResponseWriter, r request) {
			if !working {
				w.WriteHeader(500)
			}
		})
		w, _ := h.create(r.URL)
		try := func(want bool) webhook.Webhook {
			t.Helper()
			working = want
			h.record(event.Bounce, 1)
			id := h.newest()
			for h.outcome().event != id { // older deliveries are tried too
			}
			return h.hook(w.ID)
		}
		since := func(w webhook.Webhook) time.Duration { return h.now().Sub(w.FailingSince) }
		if w := try(true); !w.FailingSince.IsZero() {
			t.Fatal("it fails")
		}
		if w := try(false); w.FailingSince.IsZero() || since(w) > waitLimit {
			t.Fatalf("failing since %v", w.FailingSince)
		}
		h.forward(webhook.FailingFor - time.Hour)
		if w := try(false); w.Status != webhook.StatusEnabled || since(w) < webhook.FailingFor-time.Hour {
			t.Fatalf("disabled too early: %+v", w)
		}
		if w := try(true); !w.FailingSince.IsZero() {
			t.Fatal("a success does not count")
		}
		try(false)
		h.forward(webhook.FailingFor + time.Minute) // and waiting deliveries are tried again
		h.outcome()
		for w = h.hook(w.ID); w.Status != webhook.StatusDisabled; w = h.hook(w.ID) {
			h.outcome()
		}
		if w.Reason != webhook.ReasonFailing {
			t.Errorf("disabled: %+v", w)
		}
	})
}
