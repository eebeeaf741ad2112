// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

func (a *API) webhookRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/webhooks", id: "createWebhook", checksFirst: true, scope: "webhooks.write", status: 201, conflicts: true,
		summary: "Make a webhook", description: "Events of the kinds named are sent to the URL from now on, signed with the secret, which this answer alone shows. " +
			"A key of one domain makes webhooks for events of that domain only; such a filter is set when none is given."}, a.createWebhook)
	handle(r, operation{method: "GET", path: "/webhooks", id: "listWebhooks", scope: "webhooks.read",
		summary: "List webhooks", description: "Newest first. A key of one domain sees those that are for nothing but that domain."}, a.listWebhooks)
	handle(r, operation{method: "GET", path: "/webhooks/{id}", id: "getWebhook", scope: "webhooks.read",
		summary: "Show a webhook", description: "With its state, and why it is disabled if it is."}, a.getWebhook)
	handle(r, operation{method: "PATCH", path: "/webhooks/{id}", id: "updateWebhook", checksFirst: true, scope: "webhooks.write", conflicts: true,
		summary: "Change, disable or enable a webhook", description: "Only what is given is changed. What happens while a webhook is disabled makes no deliveries: a replay makes them afterwards."}, a.updateWebhook)
	handle(r, operation{method: "DELETE", path: "/webhooks/{id}", id: "deleteWebhook", scope: "webhooks.write", status: 204,
		summary: "Delete a webhook", description: "Its deliveries go with it; what waits is not sent."}, a.deleteWebhook)
	handle(r, operation{method: "POST", path: "/webhooks/{id}/rotate-secret", id: "rotateWebhookSecret", scope: "webhooks.write", conflicts: true,
		summary: "Make a new secret", description: "It is shown in this answer only. `X-Service-Signature` is made with it at once; in `webhook-signature` the old one signs as well, for 24 hours or as long as you say."}, a.rotateWebhookSecret)
	a.deliveryRoutes(r)
}

type webhookAnswer struct {
	ID             db.ID      `json:"id" doc:"The webhook's id."`
	URL            string     `json:"url" doc:"Where events are sent." example:"https://app.example.com/hooks"`
	Description    string     `json:"description" doc:"What it is for, or empty." example:"the shop"`
	Events         []string   `json:"events" nullable:"false" doc:"The kinds of event that are sent; all alone is every kind." example:"bounce,complaint"`
	Domains        []db.ID    `json:"domains" nullable:"false" doc:"Only events about one of these domains, or of the mailboxes beside; every event if both are empty."`
	Mailboxes      []db.ID    `json:"mailboxes" nullable:"false" doc:"Only events about one of these mailboxes, or of the domains beside."`
	IncludeContent bool       `json:"include_content" doc:"Whether inbound_email events hold what the message says: its subject, addresses, texts and files."`
	Status         string     `json:"status" enum:"enabled,disabled" doc:"A disabled one gets nothing."`
	DisabledReason *string    `json:"disabled_reason" doc:"manual: by you; gone: it answered 410; failing: every attempt of five days failed; null while it is enabled." example:"gone"`
	DisabledAt     *time.Time `json:"disabled_at" doc:"Since when it is disabled; null while it is not."`
	FailingSince   *time.Time `json:"failing_since" doc:"The first failure since the last success; null for none."`
	Secret         string     `json:"secret,omitempty" doc:"The key of the signatures; shown in the answer that made it and never again." example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
	OldSecretUntil *time.Time `json:"old_secret_until" doc:"Until when the secret before this one signs as well; null for none."`
	CreatedAt      time.Time  `json:"created_at" doc:"When it was made."`
	UpdatedAt      time.Time  `json:"updated_at" doc:"When it was last changed."`
}

func showWebhook(w webhook.Webhook) webhookAnswer {
	out := webhookAnswer{
		ID: w.ID, URL: w.URL, Description: w.Description, Events: w.Kinds, Domains: append([]db.ID{}, w.Domains...), Mailboxes: append([]db.ID{}, w.Mailboxes...),
		IncludeContent: w.Content, Status: w.Status, DisabledReason: optional(w.Reason), FailingSince: optionalTime(w.FailingSince), OldSecretUntil: optionalTime(w.OldUntil),
		CreatedAt: stamp(w.CreatedAt), UpdatedAt: stamp(w.UpdatedAt),
	}
	if w.Status == webhook.Disabled {
		out.DisabledAt = optionalTime(w.StatusAt)
	}
	return out
}

type createWebhookRequest struct {
	URL         string   `json:"url" doc:"Where events are sent: https, on the public Internet, unless the operator allows other places." example:"https://app.example.com/hooks"`
	Events      []string `json:"events" nullable:"false" doc:"Kinds of event; all stands for every kind, those to come included." example:"bounce,complaint"`
	Description string   `json:"description,omitempty" doc:"What it is for, at most 200 characters." example:"the shop"`
	Domains     []string `json:"domains,omitempty" nullable:"false" doc:"Ids of domains: only events about one of them (itself, what it sent, its mailboxes), or of the mailboxes beside. A rate_limit_warning is about none."`
	Mailboxes   []string `json:"mailboxes,omitempty" nullable:"false" doc:"Ids of mailboxes: only events about one of them (what arrived there, its making, a migration into it), or of the domains beside."`
	Content     *bool    `json:"include_content,omitempty" doc:"Whether inbound_email events hold what the message says. True needs the scope mail.read, and is the default for a key that has it."`
}

type createWebhookInput struct{ Body createWebhookRequest }

func (a *API) createWebhook(ctx context.Context, p account.Principal, in *createWebhookInput) (webhookAnswer, error) {
	reads := p.Can(readMail)
	n := webhook.NewHook{URL: in.Body.URL, Kinds: in.Body.Events, Description: in.Body.Description, Content: reads}
	var err error
	if c := in.Body.Content; c != nil {
		if n.Content = *c; n.Content {
			err = p.Require(readMail)
		}
	}
	if err != nil {
		return webhookAnswer{}, err
	}
	if n.Domains, n.Mailboxes, err = a.about(ctx, p, in.Body.Domains, in.Body.Mailboxes); err != nil {
		return webhookAnswer{}, err
	}
	if p.Domain != "" && len(n.Domains)+len(n.Mailboxes) == 0 {
		only, ok, err := a.onlyDomain(ctx, p)
		if err == nil && !ok {
			err = errOneDomain
		}
		if err != nil {
			return webhookAnswer{}, err
		}
		n.Domains = []db.ID{only}
	}
	w, secret, err := a.Webhooks.Create(ctx, p.Account, n)
	out := showWebhook(w)
	out.Secret = secret
	return out, err
}

// about reads the ids of a filter. What the key does not see is as unknown as
// what is not there.
func (a *API) about(ctx context.Context, p account.Principal, domains, mailboxes []string) (d, m []db.ID, err error) {
	read := func(texts []string, find func(context.Context, account.Principal, *one) (db.ID, error)) ([]db.ID, error) {
		if len(texts) > webhook.MaxFilter {
			return make([]db.ID, len(texts)), nil // refused without a look
		}
		ids := make([]db.ID, len(texts))
		for i, text := range texts {
			id, err := find(ctx, p, &one{text})
			switch {
			case err == nil:
				ids[i] = id
			case !fault.Is(err, fault.NotFound): // one that is not there stays 0, which is nobody's
				return nil, err
			}
		}
		return ids, nil
	}
	if d, err = read(domains, a.domainID); err == nil {
		m, err = read(mailboxes, a.mailboxID)
	}
	return d, m, err
}

// seesFilter reports whether events about these domains and mailboxes are all about
// what the key may see.
func (a *API) seesFilter(ctx context.Context, p account.Principal, domains, mailboxes []db.ID) (bool, error) {
	if p.Domain == "" {
		return true, nil
	}
	only, ok, err := a.onlyDomain(ctx, p)
	if err != nil || !ok || len(domains)+len(mailboxes) == 0 {
		return false, err
	}
	for _, d := range domains {
		if d != only {
			return false, nil
		}
	}
	for _, id := range mailboxes {
		m, err := a.Mailboxes.Get(ctx, p.Account, id)
		if fault.Is(err, fault.NotFound) {
			return false, nil
		}
		if err != nil || m.Domain != only {
			return false, err
		}
	}
	return true, nil
}

// webhook finds a webhook that the principal may see.
func (a *API) webhook(ctx context.Context, p account.Principal, in *one) (webhook.Webhook, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return webhook.Webhook{}, err
	}
	w, err := a.Webhooks.Get(ctx, p.Account, id)
	if err != nil {
		return webhook.Webhook{}, err
	}
	ok, err := a.seesFilter(ctx, p, w.Domains, w.Mailboxes)
	if err == nil && !ok {
		err = errNotFound
	}
	return w, err
}

func (a *API) listWebhooks(ctx context.Context, p account.Principal, in *page) (list[webhookAnswer], error) {
	at, err := in.db()
	if err != nil {
		return list[webhookAnswer]{}, err
	}
	hooks, more, err := a.Webhooks.List(ctx, p.Account, at)
	if err != nil {
		return list[webhookAnswer]{}, err
	}
	out := answer(*in, hooks, more, showWebhook, func(w webhook.Webhook) string { return w.ID.String() })
	if p.Domain == "" {
		return out, nil
	}
	visible := []webhookAnswer{}
	for i, w := range hooks {
		ok, err := a.seesFilter(ctx, p, w.Domains, w.Mailboxes)
		if err != nil {
			return list[webhookAnswer]{}, err
		}
		if ok {
			visible = append(visible, out.Data[i])
		}
	}
	out.Data = visible
	return out, nil
}

func (a *API) getWebhook(ctx context.Context, p account.Principal, in *one) (webhookAnswer, error) {
	w, err := a.webhook(ctx, p, in)
	return showWebhook(w), err
}

type updateWebhookRequest struct {
	URL         *string   `json:"url,omitempty" doc:"Where events are sent; what waits goes there too." example:"https://app.example.com/hooks"`
	Events      *[]string `json:"events,omitempty" nullable:"false" doc:"All kinds of event that shall be sent." example:"bounce,complaint"`
	Description *string   `json:"description,omitempty" doc:"What it is for." example:"the shop"`
	Domains     *[]string `json:"domains,omitempty" nullable:"false" doc:"Ids of all domains that events may be about; empty for no such filter."`
	Mailboxes   *[]string `json:"mailboxes,omitempty" nullable:"false" doc:"Ids of all mailboxes that events may be about; empty for no such filter."`
	Content     *bool     `json:"include_content,omitempty" doc:"Whether inbound_email events hold what the message says. False holds at once, for deliveries that wait too. True needs the scope mail.read; so does changing url, events, domains or mailboxes while it is true."`
	Status      *string   `json:"status,omitempty" enum:"enabled,disabled" doc:"Enabling one forgets its failures, and what waits goes on."`
}

type updateWebhookInput struct {
	one
	Body updateWebhookRequest
}

func (b *updateWebhookRequest) change() webhook.Change {
	return webhook.Change{URL: b.URL, Kinds: b.Events, Description: b.Description, Content: b.Content, Status: b.Status}
}

func (a *API) updateWebhook(ctx context.Context, p account.Principal, in *updateWebhookInput) (webhookAnswer, error) {
	w, err := a.webhook(ctx, p, &in.one)
	if err != nil {
		return webhookAnswer{}, err
	}
	b := in.Body
	c := b.change()
	var texts [2][]string
	for i, given := range []*[]string{b.Domains, b.Mailboxes} {
		if given != nil {
			texts[i] = *given
		}
	}
	domains, mailboxes, err := a.about(ctx, p, texts[0], texts[1])
	if err != nil {
		return webhookAnswer{}, err
	}
	if b.Domains != nil {
		c.Domains = &domains
	}
	if b.Mailboxes != nil {
		c.Mailboxes = &mailboxes
	}
	c.May = func(ctx context.Context, domains, mailboxes []db.ID) error {
		ok, err := a.seesFilter(ctx, p, domains, mailboxes)
		if err == nil && !ok {
			err = errOneDomain
		}
		return err
	}
	c.NoMail = !p.Can(readMail)
	if c.Only, _, err = a.onlyDomain(ctx, p); err != nil {
		return webhookAnswer{}, err
	}
	w, err = a.Webhooks.Update(ctx, p.Account, w.ID, c)
	return showWebhook(w), err
}

func (a *API) deleteWebhook(ctx context.Context, p account.Principal, in *one) (nothing, error) {
	w, err := a.webhook(ctx, p, in)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.Webhooks.Delete(ctx, p.Account, w.ID)
}

type rotateWebhookSecretRequest struct {
	OverlapHours *int `json:"overlap_hours,omitempty" minimum:"0" maximum:"24" doc:"How long the old secret signs as well, 0 to 24; 24 when left out." example:"24"`
}

type rotateWebhookSecretInput struct {
	one
	Body *rotateWebhookSecretRequest
}

func (a *API) rotateWebhookSecret(ctx context.Context, p account.Principal, in *rotateWebhookSecretInput) (webhookAnswer, error) {
	w, err := a.webhook(ctx, p, &in.one)
	if err != nil {
		return webhookAnswer{}, err
	}
	overlap := webhook.Overlap
	if in.Body != nil && in.Body.OverlapHours != nil {
		hours := *in.Body.OverlapHours
		overlap = time.Duration(hours) * time.Hour
		if hours < 0 || overlap > webhook.Overlap {
			var bad fault.Fields
			bad.Add("overlap_hours", "out_of_range", "Give 0 to %d.", int(webhook.Overlap/time.Hour))
			return webhookAnswer{}, bad.Err()
		}
	}
	w, secret, err := a.Webhooks.Rotate(ctx, p.Account, w.ID, overlap)
	out := showWebhook(w)
	out.Secret = secret
	return out, err
}
