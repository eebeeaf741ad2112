// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

// All errors of a webhook are reported at once, and none repeats the input.
func TestCreateRefuses(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		mine := func(_ context.Context, _, id db.ID) (bool, error) { return id == 7, nil }
		h := build(t, url, func(o *webhook.Options) { o.OwnsDomain, o.OwnsMailbox = mine, mine })
		faults := func(n webhook.Spec) string {
			_, _, err := h.hooks.Create(t.Context(), h.account, n)
			var f *fault.Error
			if !errors.As(err, &f) {
				return fmt.Sprint(err)
			}
			var all []string
			for _, field := range f.Fields {
				all = append(all, field.Path+" "+field.Code)
				if strings.Contains(field.Message, "hunter2") {
					t.Errorf("a message repeats what was given: %s", field.Message)
				}
			}
			return strings.Join(all, ", ")
		}
		many := make([]db.ID, webhook.MaxFilterIDs+1)
		if got, want := faults(webhook.Spec{
			URL: "hunter2", Kinds: []string{"bounce", "hunter2", "open"}, Description: "hunter2\n", Domains: []db.ID{7, 8}, Mailboxes: many,
		}), "url invalid_url, events[1] unknown_event, events[2] unknown_event, description invalid_characters, domains[1] not_found, mailboxes too_many"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := faults(webhook.Spec{URL: "https://a.example/", Description: strings.Repeat("é", webhook.MaxDescription+1)}); got != "events required, description too_long" {
			t.Error(got)
		}
		for url, want := range map[string]string{
			"":                              "url invalid_url",
			"https://":                      "url invalid_url",
			"/hook":                         "url invalid_url",
			"ftp://a.example/":              "url invalid_url",
			"https:a.example":               "url invalid_url",
			"https://a b.example/":          "url invalid_url",
			" https://a.example/":           "url invalid_url",
			"https://-a-.example/":          "url invalid_url",
			"https://intranet/":             "url invalid_url",
			"https://u:hunter2@a.example/":  "url userinfo_not_allowed",
			"https://a.example/#hunter2":    "url fragment_not_allowed",
			"https://a.example/#":           "url fragment_not_allowed",
			"https://a.example:25/":         "url port_not_allowed",
			"https://a.example:99999/":      "url port_not_allowed",
			"https://a.example:0/":          "url port_not_allowed",
			"https://10.0.0.1/":             "url address_not_allowed",
			"https://[fd00:ec2::254]/":      "url address_not_allowed",
			"https://169.254.169.254/":      "url address_not_allowed",
			"https://[::ffff:192.168.1.1]/": "url address_not_allowed",
			"http://1.1.1.1/":               "url https_required",
			"http://a.example/":             "url https_required", // a public name, though the operator allows other networks
			"http://none.example/":          "url https_required",
			"https://inside.example/":       "url address_not_allowed",
			"http://inside.example/":        "url https_required",
			"https://a.example/" + strings.Repeat("x", webhook.MaxURL): "url too_long",
		} {
			if got := faults(webhook.Spec{URL: url, Kinds: []string{"all"}}); got != want {
				t.Errorf("%s: %s, want %s", url, got, want)
			}
		}
		for _, url := range []string{
			"https://a.example", "https://a.example:8443/x?y=z", "HTTPS://A.Example/", "https://münchen.example/", "https://1.1.1.1/",
			"http://localhost:3000/hook", "https://127.0.0.1/", "http://[::1]:8080/", "http://app.example/",
			"https://none.example/", "https://broken.example/", "http://broken.example/", // perhaps there later
		} {
			if got := faults(webhook.Spec{URL: url, Kinds: []string{"all"}}); got != "<nil>" {
				t.Errorf("%s: %s", url, got)
			}
		}
		strict := furnish(t, h.db, h.node, func(o *webhook.Options) { o.Dialer.AllowNets = nil })
		for url, want := range map[string]string{
			"http://a.example/": "https_required", "http://localhost/": "https_required", "https://localhost/": "address_not_allowed", "https://127.0.0.1/": "address_not_allowed",
		} {
			_, _, err := strict.hooks.Create(t.Context(), h.account, webhook.Spec{URL: url, Kinds: []string{"all"}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", url, err, want)
			}
		}
	})
}

func TestManage(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		h := build(t, url)
		ctx, other := t.Context(), h.newAccount()
		var made []webhook.Webhook
		for i := range webhook.MaxPerAccount {
			w, secret, err := h.hooks.Create(ctx, h.account, webhook.Spec{
				URL: fmt.Sprintf("https://a.example/%d", i), Kinds: []string{event.Bounce, event.InboundEmail, event.Bounce}, Description: "first",
				Domains: []db.ID{3, 1, 3}, Mailboxes: []db.ID{9},
			})
			if err != nil || !strings.HasPrefix(secret, "whsec_") {
				t.Fatal(err)
			}
			made = append(made, w)
		}
		w := made[0]
		if w.Status != webhook.StatusEnabled || w.Reason != "" || w.Description != "first" || strings.Join(w.Kinds, " ") != "inbound_email bounce" ||
			!slices.Equal(w.Domains, []db.ID{1, 3}) || !slices.Equal(w.Mailboxes, []db.ID{9}) || w.CreatedAt.IsZero() || w.Account != h.account {
			t.Errorf("made %+v", w)
		}
		if _, _, err := h.hooks.Create(ctx, h.account, webhook.Spec{URL: "https://a.example", Kinds: []string{"all"}}); !fault.Is(err, fault.Conflict) {
			t.Errorf("one more: %v", err)
		}
		page, more, err := h.hooks.List(ctx, h.account, db.Page{Limit: 2})
		if err != nil || !more || len(page) != 2 || page[0].ID != made[len(made)-1].ID {
			t.Errorf("first page: %v, %v, %v", page, more, err)
		}
		if page, more, err = h.hooks.List(ctx, h.account, db.Page{After: made[1].ID}); err != nil || more || len(page) != 1 || page[0].URL != made[0].URL {
			t.Errorf("last page: %v, %v, %v", page, more, err)
		}
		text, kinds, disabled := "second", []string{"all", "bounce"}, webhook.StatusDisabled
		is, err := h.hooks.Update(ctx, h.account, w.ID, webhook.Change{Description: &text, Kinds: &kinds, Status: &disabled, Domains: &[]db.ID{}})
		if err != nil || is.Description != text || strings.Join(is.Kinds, " ") != "all" || is.Status != disabled || is.Reason != webhook.ReasonManual ||
			len(is.Domains) != 0 || len(is.Mailboxes) != 1 || is.URL != w.URL || !is.UpdatedAt.After(w.UpdatedAt) {
			t.Errorf("changed: %+v, %v", is, err)
		}
		bad, nonsense := "http://1.1.1.1/", "off"
		if _, err := h.hooks.Update(ctx, h.account, w.ID, webhook.Change{URL: &bad, Status: &nonsense}); err == nil ||
			!strings.Contains(err.Error(), "https_required") || !strings.Contains(err.Error(), "invalid_status") {
			t.Errorf("refused: %v", err)
		}
		for name, err := range map[string]error{
			"get":        second(h.hooks.Get(ctx, other, w.ID)),
			"update":     second(h.hooks.Update(ctx, other, w.ID, webhook.Change{Description: &text})),
			"delete":     h.hooks.Delete(ctx, other, w.ID),
			"rotate":     third(h.hooks.RotateSecret(ctx, other, w.ID, 0)),
			"test":       third(h.hooks.Test(ctx, other, w.ID, "")),
			"deliveries": third(h.hooks.Deliveries(ctx, other, w.ID, "", db.Page{})),
			"delivery":   third(h.hooks.Delivery(ctx, other, w.ID, 1)),
			"mine":       third(h.hooks.Delivery(ctx, h.account, w.ID, 1)),
			"body":       second(h.hooks.DeliveryBody(ctx, other, w.ID, 1, true)),
			"redeliver":  second(h.hooks.Redeliver(ctx, other, w.ID, 1)),
			"replay":     second(h.hooks.Replay(ctx, other, w.ID, time.Now(), false)),
		} {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.hooks.Delete(ctx, h.account, w.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := h.hooks.Get(ctx, h.account, w.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("it is still there: %v", err)
		}
		if err := h.hooks.Delete(ctx, h.account, w.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if _, _, err := h.hooks.Create(ctx, h.account, webhook.Spec{URL: "https://a.example", Kinds: []string{"all"}}); err != nil {
			t.Errorf("there is room again: %v", err)
		}
	})
}

// A webhook that is deleted during a test leaves no rows.
func TestDeletedDuringTest(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		h := build(t, url)
		var w webhook.Webhook
		r := listen(t, func(http.ResponseWriter, request) {
			if err := h.hooks.Delete(t.Context(), h.account, w.ID); err != nil {
				t.Error(err)
			}
			if err := h.hooks.Purge(t.Context()); err != nil {
				t.Error(err)
			}
		})
		w, _ = h.create(r.URL)
		if _, _, err := h.hooks.Test(t.Context(), h.account, w.ID, ""); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		h.forward(2 * time.Hour)
		if err := h.hooks.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		var left int
		for _, table := range []string{"webhook", "webhook_dispatch", "webhook_delivery", "webhook_attempt"} {
			if err := h.db.One(t.Context(), db.SQL("SELECT COUNT(*) FROM "+table).With(), &left); err != nil || left > 0 {
				t.Errorf("%d left in %s, %v", left, table, err)
			}
		}
	})
}

// Slow receivers of one account leave test slots to other accounts.
func TestTestsOfOneAccount(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		h := build(t, url)
		arrived, release := make(chan bool, 100), make(chan bool)
		slow := listen(t, func(http.ResponseWriter, request) { arrived <- true; <-release })
		w, _ := h.create(slow.URL)
		var all sync.WaitGroup
		for range webhook.TestsOfOne {
			all.Go(func() {
				if _, _, err := h.hooks.Test(t.Context(), h.account, w.ID, ""); err != nil {
					t.Error(err)
				}
			})
		}
		for range webhook.TestsOfOne {
			<-arrived
		}
		if _, _, err := h.hooks.Test(t.Context(), h.account, w.ID, ""); !fault.Is(err, fault.RateLimited) {
			t.Errorf("one more: %v", err)
		}
		mine := h.account
		h.account = h.newAccount()
		quick, _ := h.create(listen(t, nil).URL)
		if _, _, err := h.hooks.Test(t.Context(), h.account, quick.ID, ""); err != nil {
			t.Errorf("another account: %v", err)
		}
		close(release)
		all.Wait()
		if _, _, err := h.hooks.Test(t.Context(), mine, w.ID, ""); err != nil {
			t.Errorf("once they are over: %v", err)
		}
	})
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

// After a rotation, X-Service-Signature uses the new secret at once; webhook-signature has both for
// a day.
func TestRotate(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, nil)
		w, first := h.create(r.URL)
		signs := func(secret string) (service, std bool) {
			t.Helper()
			h.record(event.Bounce, 1)
			got := r.next()
			h.outcome()
			return verify(secret, got.Header, got.body) == nil, standard(secret, got.Header, got.body) == nil
		}
		expect := func(what, secret string, service, std bool) {
			t.Helper()
			if s, d := signs(secret); s != service || d != std {
				t.Errorf("%s signs X-Service-Signature: %v, webhook-signature: %v", what, s, d)
			}
		}
		expect("the first", first, true, true)
		is, fresh, err := h.hooks.RotateSecret(t.Context(), h.account, w.ID, webhook.SecretOverlap)
		if err != nil || fresh == first || is.OldSecretUntil.Sub(h.now()) > 24*time.Hour || is.OldSecretUntil.Sub(h.now()) < 24*time.Hour-waitLimit {
			t.Fatalf("%+v, %v", is, err)
		}
		expect("the old one", first, false, true)
		expect("the new one", fresh, true, true)
		h.forward(24*time.Hour + time.Second)
		expect("the old one, a day later", first, false, false)
		expect("the new one, a day later", fresh, true, true)
		_, leaked, err := h.hooks.RotateSecret(t.Context(), h.account, w.ID, webhook.SecretOverlap)
		if err != nil {
			t.Fatal(err)
		}
		is, last, err := h.hooks.RotateSecret(t.Context(), h.account, w.ID, 0)
		if err != nil || !is.OldSecretUntil.IsZero() {
			t.Fatalf("%+v, %v", is, err)
		}
		expect("one that was revoked", leaked, false, false)
		expect("the last one", last, true, true)
	})
}

// A test continues when its client disconnects, and its delivery shows the receiver's response.
func TestTestLeft(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx, leave := context.WithCancel(t.Context())
		r := listen(t, func(w http.ResponseWriter, r request) {
			leave()
			w.WriteHeader(http.StatusTeapot)
		})
		w, _ := h.create(r.URL)
		d, a, err := h.hooks.Test(ctx, h.account, w.ID, "")
		if err != nil || d.Code != http.StatusTeapot || a.Error != webhook.ErrorStatus {
			t.Errorf("%+v, %+v, %v", d, a, err)
		}
	})
}

// A test is a real delivery, listed as one, but not an event of the log.
func TestTest(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		code := 200
		r := listen(t, func(w http.ResponseWriter, r request) { w.WriteHeader(code) })
		w, secret := h.create(r.URL, event.Complaint)
		for _, kind := range append(event.Kinds[:], "") {
			d, a, err := h.hooks.Test(t.Context(), h.account, w.ID, kind)
			if err != nil {
				t.Fatal(kind, err)
			}
			if kind == "" {
				kind = event.Complaint
			}
			got := r.next()
			if d.State != webhook.Delivered || !d.Test || d.Kind != kind || d.Attempts != 1 || a.Code != 200 || got.Header.Get("X-Event-ID") != d.ID.String() {
				t.Errorf("%+v, %+v", d, a)
			}
			if verify(secret, got.Header, got.body) != nil || standard(secret, got.Header, got.body) != nil || got.Header.Get("X-Service-Event") != kind {
				t.Error("not as a real one")
			}
			var body struct {
				ID, Type  string
				Account   string `json:"account_id"`
				Version   int
				Timestamp time.Time
				Data      map[string]any
			}
			if err := json.Unmarshal(got.body, &body); err != nil || body.Data["test"] != true || body.Type != kind || body.ID != d.ID.String() ||
				body.Account != h.account.String() || body.Version != 1 || body.Timestamp.IsZero() {
				t.Errorf("%s, %v", got.body, err)
			}
			if _, err := h.log.Get(t.Context(), h.account, d.ID, true); !fault.Is(err, fault.NotFound) {
				t.Errorf("it is in the log: %v", err)
			}
		}
		for _, kind := range []string{"all", "open"} {
			if _, _, err := h.hooks.Test(t.Context(), h.account, w.ID, kind); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v", kind, err)
			}
		}
		code = 410
		d, a, err := h.hooks.Test(t.Context(), h.account, w.ID, "")
		if err != nil || d.State != webhook.Failed || a.Error != webhook.ErrorGone || h.hook(w.ID).Status != webhook.StatusEnabled {
			t.Errorf("%+v, %+v, %v", d, a, err)
		}
		before := r.next()
		code = 200
		if _, err := h.hooks.Redeliver(t.Context(), h.account, w.ID, d.ID); err != nil {
			t.Fatal(err)
		}
		if again := r.next(); !bytes.Equal(again.body, before.body) {
			t.Error("redelivered with another body")
		}
		h.outcome()
		disabled := webhook.StatusDisabled
		if _, err := h.hooks.Update(t.Context(), h.account, w.ID, webhook.Change{Status: &disabled}); err != nil {
			t.Fatal(err)
		}
		if d, _, err := h.hooks.Test(t.Context(), h.account, w.ID, ""); err != nil || d.State != webhook.Delivered {
			t.Errorf("to a disabled one: %+v, %v", d, err)
		}
	})
}
