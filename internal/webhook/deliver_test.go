// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/webhook"
)

// A receiver gets each event of its subscription once, signed as specified, and rejects a body with
// one changed byte.
func TestDeliver(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, nil)
		w, secret := h.create(r.URL+"/hook?x=1", event.Bounce, event.Complaint)
		h.record(event.DeliveryStatus, 3)
		h.record(event.Bounce, 1)
		got := r.next()
		o := h.outcome()
		if err := verify(secret, got.Header, got.body); err != nil {
			t.Error(err)
		}
		for i := range got.body {
			changed := bytes.Clone(got.body)
			changed[i] ^= 1
			if verify(secret, got.Header, changed) == nil {
				t.Fatalf("a body changed at %d is taken", i)
			}
		}
		e, err := h.log.Get(t.Context(), h.account, o.event, true)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := e.Body(); err != nil || !bytes.Equal(got.body, want) {
			t.Errorf("the body is %s, the event %s, %v", got.body, want, err)
		}
		for name, want := range map[string]string{
			"X-Service-Event": "bounce", "X-Event-ID": e.ID.String(), "webhook-id": e.ID.String(),
			"Content-Type": "application/json", "User-Agent": "Mailstead-Webhooks/test", "Idempotency-Key": "",
		} {
			if have := got.Header.Get(name); have != want {
				t.Errorf("%s: %q, want %q", name, have, want)
			}
		}
		at, err := strconv.ParseInt(got.Header.Get("X-Service-Timestamp"), 10, 64)
		if err != nil || time.Since(time.Unix(at, 0)).Abs() > waitLimit || got.Header.Get("webhook-timestamp") != strconv.FormatInt(at, 10) {
			t.Errorf("timestamp %q, %v", got.Header.Get("X-Service-Timestamp"), err)
		}
		if got.Method != http.MethodPost || got.URL.RequestURI() != "/hook?x=1" || int(got.ContentLength) != len(got.body) {
			t.Errorf("%s %s with %d octets", got.Method, got.URL.RequestURI(), got.ContentLength)
		}
		if err := standard(secret, got.Header, got.body); err != nil {
			t.Error(err)
		}
		d, attempts := h.delivery(w.ID, o.event)
		if d.State != webhook.Delivered || d.Attempts != 1 || d.Code != 200 || d.Error != "" || d.Kind != event.Bounce || !d.NextAt.IsZero() || d.Test {
			t.Errorf("delivery %+v", d)
		}
		if len(attempts) != 1 || attempts[0].Code != 200 || attempts[0].Number != 1 || attempts[0].Duration <= 0 || !attempts[0].NextAt.IsZero() ||
			attempts[0].Headers["X-Service-Signature"] != got.Header.Get("X-Service-Signature") {
			t.Errorf("attempts %+v", attempts)
		}
		h.nothingElse(r)
	})
}

// nothingElse delivers a last event, and checks that no other came before it.
func (h *fixture) nothingElse(r *receiver) {
	h.t.Helper()
	h.record(event.Complaint, 1)
	if got := r.next(); got.Header.Get("X-Service-Event") != event.Complaint {
		h.t.Errorf("another request came: %s", got.body)
	}
	h.outcome()
}

// Which webhook gets which event.
func TestMatch(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, nil)
		first, second, box := h.db.NewID(), h.db.NewID(), h.db.NewID()
		other := h.newAccount()
		for path, n := range map[string]webhook.Spec{
			"all":      {Kinds: []string{webhook.AllKinds, event.Bounce}},
			"bounce":   {Kinds: []string{event.Bounce}},
			"two":      {Kinds: []string{event.DeliveryStatus, event.Bounce}},
			"first":    {Kinds: []string{webhook.AllKinds}, Domains: []db.ID{first}},
			"both":     {Kinds: []string{webhook.AllKinds}, Domains: []db.ID{second, first}},
			"box":      {Kinds: []string{webhook.AllKinds}, Mailboxes: []db.ID{box}},
			"either":   {Kinds: []string{webhook.AllKinds}, Domains: []db.ID{second}, Mailboxes: []db.ID{box}},
			"disabled": {Kinds: []string{webhook.AllKinds}, Disabled: true},
		} {
			n.URL = r.URL + "/" + path
			if _, _, err := h.hooks.Create(t.Context(), h.account, n); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := h.hooks.Create(t.Context(), other, webhook.Spec{URL: r.URL + "/other", Kinds: []string{webhook.AllKinds}}); err != nil {
			t.Fatal(err)
		}
		events := []struct {
			event.RecordParams
			want string
		}{
			{event.RecordParams{Kind: event.Bounce}, "all bounce two"},
			{event.RecordParams{Kind: event.Bounce, Domain: first}, "all both bounce first two"},
			{event.RecordParams{Kind: event.DeliveryStatus, Domain: second}, "all both either two"},
			{event.RecordParams{Kind: event.InboundEmail, Domain: first, Mailbox: box}, "all both box either first"},
			{event.RecordParams{Kind: event.InboundEmail, Mailbox: first}, "all"},
			{event.RecordParams{Kind: event.RateLimitWarning}, "all"},
		}
		h.recordAll(h.account, func(i int) event.RecordParams {
			e := events[i].RecordParams
			e.Data = data{i}
			return e
		}, len(events))
		h.recordAll(other, func(int) event.RecordParams { return event.RecordParams{Kind: event.Bounce, Data: data{len(events)}} }, 1)
		got, total := make([][]string, len(events)+1), 1
		for _, e := range events {
			total += len(strings.Fields(e.want))
		}
		for range total {
			r := r.next()
			var body struct{ Data data }
			if err := json.Unmarshal(r.body, &body); err != nil {
				t.Fatal(err)
			}
			got[body.Data.N] = append(got[body.Data.N], r.URL.Path[1:])
			h.outcome()
		}
		for i, g := range got {
			slices.Sort(g)
			want := "other"
			if i < len(events) {
				want = events[i].want
			}
			if strings.Join(g, " ") != want {
				t.Errorf("event %d went to %v, want %s", i, g, want)
			}
		}
	})
}
