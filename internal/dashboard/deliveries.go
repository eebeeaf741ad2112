// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/webhook"
)

// webhookPage is the data of a webhook's page.
type webhookPage struct {
	Hook   webhook.Webhook
	About  []string
	Kinds  [][2]string // event types for a test event
	State  string      // state filter of the deliveries; "" for all
	States []string
	List   []webhook.Delivery
	Pager  pager
}

func (d *Dashboard) webhook(v *requestContext) (page, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return page{}, err
	}
	s := webhookPage{Hook: w, State: v.r.URL.Query().Get("state"), States: webhook.States[:]}
	if !slices.Contains(s.States, s.State) {
		s.State = ""
	}
	for _, k := range eventKinds {
		s.Kinds = append(s.Kinds, [2]string{k[0], k[1]})
	}
	if s.About, err = d.webhookFilterNames(v, w); err != nil {
		return page{}, err
	}
	p := v.listPage()
	var more bool
	if s.List, more, err = d.Webhooks.Deliveries(v.ctx, v.session.Account, w.ID, s.State, p); err != nil {
		return page{}, err
	}
	if n := len(s.List); n > 0 {
		s.Pager = newPager("/webhooks/"+w.ID.String()+"?"+encodeQuery("state", s.State), p, n, more, s.List[0].ID, s.List[n-1].ID)
	}
	return page{Template: "webhook", Title: w.URL, Section: "webhooks", Data: s}, nil
}

// webhookAttemptView is an attempt with the headers that were sent.
type webhookAttemptView struct {
	webhook.Attempt
	Request string
}

func (d *Dashboard) webhookDelivery(v *requestContext) (page, error) {
	w, id, err := d.findWebhookDelivery(v)
	if err != nil {
		return page{}, err
	}
	found, attempts, err := d.Webhooks.Delivery(v.ctx, v.session.Account, w.ID, id)
	if err != nil {
		return page{}, err
	}
	s := struct {
		Hook     webhook.Webhook
		Delivery webhook.Delivery
		Body     string // "" if the event is no longer stored
		Withheld bool   // whether the user may not read mail
		Attempts []webhookAttemptView
	}{Hook: w, Delivery: found}
	slices.Reverse(attempts) // show the last attempt first
	for _, a := range attempts {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
			b.WriteString(name + ": " + a.Headers[name] + "\n")
		}
		s.Attempts = append(s.Attempts, webhookAttemptView{a, b.String()})
	}
	body, err := d.Webhooks.DeliveryBody(v.ctx, v.session.Account, w.ID, id, v.session.ReadsMail)
	s.Withheld = err == nil && body == nil
	if err == nil && found.Content && !found.Test && !s.Withheld {
		err = v.auditMailRead("Read a message in a delivery to a webhook", mailbox.Mailbox{})
	}
	if err != nil && !fault.Is(err, fault.Conflict) {
		return page{}, err
	}
	var neat bytes.Buffer
	if json.Indent(&neat, body, "", "  ") == nil {
		s.Body = neat.String()
	}
	return page{Template: "delivery", Title: "Delivery", Section: "webhooks", Data: s}, nil
}

func (d *Dashboard) findWebhookDelivery(v *requestContext) (webhook.Webhook, db.ID, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return w, 0, err
	}
	id, err := v.pathID("delivery")
	return w, id, err
}

func webhookDeliveryPath(hook, id db.ID) string {
	return "/webhooks/" + hook.String() + "/deliveries/" + id.String()
}

func (d *Dashboard) testWebhook(v *requestContext) (actionResult, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return actionResult{}, err
	}
	made, _, err := d.Webhooks.Test(v.ctx, v.session.Account, w.ID, v.formText("event"))
	return actionResult{RedirectTo: webhookDeliveryPath(w.ID, made.ID), Summary: "Sent a test to the webhook " + webhook.Origin(w.URL) + "."}, err
}

func (d *Dashboard) redeliverWebhook(v *requestContext) (actionResult, error) {
	w, id, err := d.findWebhookDelivery(v)
	if err != nil {
		return actionResult{}, err
	}
	_, err = d.Webhooks.Redeliver(v.ctx, v.session.Account, w.ID, id)
	return actionResult{RedirectTo: webhookDeliveryPath(w.ID, id), Summary: "Sending an event to the webhook " + webhook.Origin(w.URL) + " again."}, err
}

// replayWebhook replays the events since a time.
func (d *Dashboard) replayWebhook(v *requestContext) (actionResult, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return actionResult{}, err
	}
	since, err := time.Parse("2006-01-02T15:04", v.formText("since"))
	if err != nil || since.Year() < 1970 {
		var bad fault.FieldErrors
		bad.Add("since", "invalid_time", "Give a date and a time.")
		return actionResult{}, bad.Err()
	}
	did, err := d.Webhooks.Replay(v.ctx, v.session.Account, w.ID, since, v.formText("missing") != "")
	told := "Sending " + plural(did.Deliveries, "event") + " to the webhook " + webhook.Origin(w.URL) + " again."
	if did.More {
		told += " There are later ones: replay since " + did.Through.UTC().Format("2006-01-02 15:04") + " for them."
	}
	return actionResult{RedirectTo: "/webhooks/" + w.ID.String(), Summary: told}, err
}
