// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/mailstead/mailstead/client"
)

// request is a request to a receiver.
type request struct {
	header http.Header
	body   []byte
}

// receiver responds 204 to every webhook request, and passes it on.
func (h *fixture) receiver() (url string, got <-chan request) {
	h.Helper()
	all := make(chan request, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			h.Error(err)
		}
		w.WriteHeader(http.StatusNoContent)
		all <- request{r.Header, body}
	}))
	h.Cleanup(s.Close)
	return s.URL, all
}

func (h *fixture) webhooks() {
	h.Helper()
	ctx := h.Context()
	url, got := h.receiver()
	_, err := h.c.CreateWebhook(ctx, client.NewWebhook{URL: "gopher://x", Events: []string{"bounce", "bounced"}, Domains: []string{nobody}, Mailboxes: []string{h.boxes[0], "x"}})
	refused(h, "a bad webhook", err, 422, "validation_failed", "events[1] unknown_value", "url invalid_url", "domains[0] not_found", "mailboxes[1] not_found")
	for n := 1; n > 0; { // earlier events are numbered before the webhook exists
		n, err = h.s.Events.AssignPositions(ctx)
		h.want("numbering", err)
	}
	w, err := h.c.CreateWebhook(ctx, client.NewWebhook{URL: url, Events: []string{"bounce", "delivery_status"}, Description: "the shop", Domains: []string{h.domain}})
	h.want("making a webhook", err)
	if w.Secret == "" || w.Status != "enabled" || len(w.Events) != 2 || w.Description != "the shop" || len(w.Domains) != 1 || w.Domains[0] != h.domain || len(w.Mailboxes) != 0 {
		h.Errorf("made %+v", w)
	}
	secret := w.Secret
	if shown, err := h.c.GetWebhook(ctx, w.ID); err != nil || shown.Secret != "" || shown.URL != url || shown.DisabledReason != "" || shown.OldSecretUntil != nil {
		h.Errorf("shown as %+v, %v", shown, err)
	}
	if all := collect(h, h.c.Webhooks(ctx)); len(all) != 1 || all[0].ID != w.ID || all[0].Secret != "" {
		h.Errorf("the webhooks are %+v", all)
	}

	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bounced@simulator.test"}, Subject: "x", Text: "x"})
	h.want("sending", err)
	types := map[string]string{}
	for range 2 {
		r := <-got
		e, err := client.VerifyWebhook(r.header, r.body, secret)
		h.want("verifying", err)
		if !client.WebhookSigned(r.header, r.body, secret) || r.header.Get("X-Event-ID") != e.ID || r.header.Get("X-Service-Event") != e.Type {
			h.Errorf("a request with %v", r.header)
		}
		var d client.MessageData
		if err := e.Decode(&d); err != nil || d.ID != a.ID {
			h.Errorf("the event is %s, %v", r.body, err)
		}
		types[e.Type] = e.ID
		h.delivered(w.ID, e.ID, string(r.body))
	}
	if len(types) != 2 {
		h.Errorf("the events are %v", types)
	}
	h.deliveries(w.ID, types["bounce"], got)
	h.changes(w, secret, got)
}

// delivered waits until a delivery is recorded, and checks it.
func (h *fixture) delivered(hook, id, body string) {
	h.Helper()
	tick := time.NewTicker(10 * time.Millisecond) // nothing notifies of the record
	defer tick.Stop()
	for {
		d, err := h.c.GetWebhookDelivery(h.Context(), hook, id)
		h.want("showing a delivery", err)
		if d.Status == "pending" {
			<-tick.C
			continue
		}
		if d.Status != "delivered" || d.ID != id || d.WebhookID != hook || d.Attempts != 1 || d.ResponseStatus != 204 || d.Reason != "" || d.NextAttemptAt != nil || d.Test ||
			d.Body != body || len(d.Timeline) != 1 || d.Timeline[0].Number != 1 || d.Timeline[0].ResponseStatus != 204 || d.Timeline[0].RequestHeaders["X-Event-ID"] != id {
			h.Errorf("the delivery is %s", raw(h.T, d))
		}
		return
	}
}

func (h *fixture) deliveries(hook, bounce string, got <-chan request) {
	h.Helper()
	ctx := h.Context()
	if all := collect(h, h.c.WebhookDeliveries(ctx, hook, client.WebhookDeliveryFilter{Statuses: []string{"delivered"}})); len(all) != 2 || all[0].Type != "bounce" && all[1].Type != "bounce" {
		h.Errorf("the deliveries are %+v", all)
	}
	if page, err := h.c.ListWebhookDeliveries(ctx, hook, client.WebhookDeliveryFilter{Statuses: []string{"failed"}}, client.Paging{}); err != nil || len(page.Data) != 0 {
		h.Errorf("failed: %+v, %v", page, err)
	}
	_, err := h.c.ListWebhookDeliveries(ctx, hook, client.WebhookDeliveryFilter{Statuses: []string{"lost"}}, client.Paging{})
	refused(h, "a bad filter", err, 422, "validation_failed", "status unknown_value")

	d, err := h.c.TestWebhook(ctx, hook, "complaint")
	h.want("a test", err)
	r := <-got
	if d.Status != "delivered" || !d.Test || !strings.Contains(d.Body, `"test":true`) || d.Type != "complaint" || d.Body != string(r.body) || r.header.Get("X-Event-ID") != d.ID {
		h.Errorf("the test was %s, %s", raw(h.T, d), r.body)
	}
	_, err = h.c.TestWebhook(ctx, hook, "all")
	refused(h, "a test of all", err, 422, "validation_failed", "event unknown_value")

	again, err := h.c.RedeliverWebhookDelivery(ctx, hook, bounce)
	if err != nil || again.Status != "pending" && again.Status != "delivered" {
		h.Errorf("redelivered: %+v, %v", again, err)
	}
	if r := <-got; r.header.Get("X-Event-ID") != bounce {
		h.Errorf("redelivered %s", r.body)
	}
	_, err = h.c.RedeliverWebhookDelivery(ctx, hook, nobody)
	refused(h, "no delivery", err, 404, "not_found")
	_, err = h.c.GetWebhookDelivery(ctx, hook, nobody)
	refused(h, "no delivery", err, 404, "not_found")
}

func (h *fixture) changes(w *client.Webhook, secret string, got <-chan request) {
	h.Helper()
	ctx := h.Context()
	rotated, err := h.c.RotateWebhookSecret(ctx, w.ID, 24*time.Hour)
	h.want("rotating", err)
	if rotated.Secret == "" || rotated.Secret == secret || rotated.OldSecretUntil == nil || time.Until(*rotated.OldSecretUntil) < 23*time.Hour {
		h.Errorf("rotated to %+v", rotated)
	}
	both := func(old bool) {
		h.Helper()
		_, err := h.c.TestWebhook(ctx, w.ID, "")
		h.want("a test", err)
		r := <-got
		if _, err := client.VerifyWebhook(r.header, r.body, rotated.Secret); err != nil || !client.WebhookSigned(r.header, r.body, rotated.Secret) {
			h.Errorf("the new secret: %v", err)
		}
		if _, err := client.VerifyWebhook(r.header, r.body, secret); (err == nil) != old || client.WebhookSigned(r.header, r.body, secret) {
			h.Errorf("the old secret: %v", err)
		}
	}
	both(true)
	if rotated, err = h.c.RotateWebhookSecret(ctx, w.ID, 0); err != nil || rotated.OldSecretUntil != nil {
		h.Errorf("rotated to %+v, %v", rotated, err)
	}
	both(false)

	done, err := h.c.ReplayWebhook(ctx, w.ID, time.Now().Add(-time.Hour), true)
	if err != nil || done.HasMore {
		h.Errorf("replayed what is missing: %+v, %v", done, err)
	}
	for range done.Deliveries {
		<-got
	}
	if done, err = h.c.ReplayWebhook(ctx, w.ID, time.Now().Add(-time.Hour), false); err != nil || done.Deliveries == 0 { // deliveries not yet recorded as delivered are unchanged
		h.Errorf("replayed %+v, %v", done, err)
	}
	for range done.Deliveries {
		<-got
	}
	disabled, description := "disabled", "nothing"
	changed, err := h.c.UpdateWebhook(ctx, w.ID, client.WebhookChange{Status: &disabled, Description: &description, Domains: &[]string{}, Mailboxes: &[]string{h.boxes[1]}, Events: &[]string{"bounce", "all"}})
	h.want("disabling", err)
	if changed.Status != disabled || changed.DisabledReason != "manual" || changed.DisabledAt == nil || changed.Description != description || len(changed.Domains) != 0 ||
		len(changed.Mailboxes) != 1 || len(changed.Events) != 1 || changed.Events[0] != "all" {
		h.Errorf("changed to %+v", changed)
	}
	_, err = h.c.ReplayWebhook(ctx, w.ID, time.Now(), false)
	refused(h, "a replay of a disabled one", err, 409, "webhook_disabled")
	bad := "on"
	_, err = h.c.UpdateWebhook(ctx, w.ID, client.WebhookChange{Status: &bad})
	refused(h, "a bad status", err, 422, "validation_failed", "status unknown_value")
	h.want("deleting", h.c.DeleteWebhook(ctx, w.ID))
	_, err = h.c.GetWebhook(ctx, w.ID)
	refused(h, "when gone", err, 404, "not_found")
}
