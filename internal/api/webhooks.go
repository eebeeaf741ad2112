// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

func (a *API) webhookRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/webhooks", id: "createWebhook", validatesFirst: true, scope: "webhooks.write", status: 201, mayConflict: true,
		summary: "Make a webhook", description: "Events of the kinds named are sent to the URL from now on, signed with the secret, which this answer alone shows. " +
			"A key of one domain makes webhooks for events of that domain only; such a filter is set when none is given."}, a.createWebhook)
	handle(r, operation{method: "GET", path: "/webhooks", id: "listWebhooks", scope: "webhooks.read",
		summary: "List webhooks", description: "Newest first. A key of one domain sees those that are for nothing but that domain."}, a.listWebhooks)
	handle(r, operation{method: "GET", path: "/webhooks/{id}", id: "getWebhook", scope: "webhooks.read",
		summary: "Show a webhook", description: "With its state, and why it is disabled if it is."}, a.getWebhook)
	handle(r, operation{method: "PATCH", path: "/webhooks/{id}", id: "updateWebhook", validatesFirst: true, scope: "webhooks.write", mayConflict: true,
		summary: "Change, disable or enable a webhook", description: "Only what is given is changed. What happens while a webhook is disabled makes no deliveries: a replay makes them afterwards."}, a.updateWebhook)
	handle(r, operation{method: "DELETE", path: "/webhooks/{id}", id: "deleteWebhook", scope: "webhooks.write", status: 204,
		summary: "Delete a webhook", description: "Its deliveries go with it; what waits is not sent."}, a.deleteWebhook)
	handle(r, operation{method: "POST", path: "/webhooks/{id}/rotate-secret", id: "rotateWebhookSecret", scope: "webhooks.write", mayConflict: true,
		summary: "Make a new secret", description: "It is shown in this answer only. `X-Service-Signature` is made with it at once; in `webhook-signature` the old one signs as well, for 24 hours or as long as you say."}, a.rotateWebhookSecret)
	a.webhookDeliveryRoutes(r)
}

type webhookResponse struct {
	ID             db.ID              `json:"id" doc:"The webhook's id."`
	URL            string             `json:"url" doc:"Where events are sent." example:"https://app.example.com/hooks"`
	Description    string             `json:"description" doc:"What it is for, or empty." example:"the shop"`
	Events         []string           `json:"events" enum:"{event},all" doc:"The kinds of event that are sent; all alone is every kind." example:"bounce,complaint"`
	Domains        []db.ID            `json:"domains" doc:"Only events about one of these domains, or of the mailboxes beside; every event if both are empty."`
	Mailboxes      []db.ID            `json:"mailboxes" doc:"Only events about one of these mailboxes, or of the domains beside."`
	IncludeContent bool               `json:"include_content" doc:"Whether inbound_email events hold what the message says: its subject, addresses, texts and files."`
	Status         string             `json:"status" enum:"enabled,disabled" doc:"A disabled one gets nothing."`
	DisabledReason *string            `json:"disabled_reason" doc:"manual: by you; gone: it answered 410; failing: every attempt of five days failed; null while it is enabled." example:"gone"`
	DisabledAt     *time.Time         `json:"disabled_at" doc:"Since when it is disabled; null while it is not."`
	FailingSince   *time.Time         `json:"failing_since" doc:"The first failure since the last success; null for none."`
	PausedUntil    *time.Time         `json:"paused_until" doc:"The time before which nothing is sent, because the last attempts failed or the receiver asked for a pause; null for no pause. A redelivery, a replay, a successful test or a change of the webhook ends it."`
	Secret         apijson.NullString `json:"secret" doc:"The key of the signatures; shown only in the response that created it; else null." example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
	OldSecretUntil *time.Time         `json:"old_secret_until" doc:"Until when the secret before this one signs as well; null for none."`
	CreatedAt      time.Time          `json:"created_at" doc:"When it was made."`
	UpdatedAt      time.Time          `json:"updated_at" doc:"When it was last changed."`
}

func newWebhookResponse(w webhook.Webhook) webhookResponse {
	out := webhookResponse{
		ID: w.ID, URL: w.URL, Description: w.Description, Events: w.Kinds, Domains: append([]db.ID{}, w.Domains...), Mailboxes: append([]db.ID{}, w.Mailboxes...),
		IncludeContent: w.Content, Status: w.Status, DisabledReason: optionalString(w.Reason), FailingSince: optionalTime(w.FailingSince), PausedUntil: optionalTime(w.PausedUntil), OldSecretUntil: optionalTime(w.OldSecretUntil),
		CreatedAt: utcTime(w.CreatedAt), UpdatedAt: utcTime(w.UpdatedAt),
	}
	if w.Status == webhook.StatusDisabled {
		out.DisabledAt = optionalTime(w.StatusAt)
	}
	return out
}

type createWebhookRequest struct {
	URL            string   `json:"url" doc:"Where events are sent: https, on the public Internet, unless the operator allows other places." example:"https://app.example.com/hooks"`
	Events         []string `json:"events" enum:"{event},all" doc:"Kinds of event; all stands for every kind, those to come included." example:"bounce,complaint"`
	Description    string   `json:"description,omitempty" doc:"What it is for, at most 200 characters." example:"the shop"`
	Domains        []string `json:"domains,omitempty" doc:"Ids of domains: only events about one of them (itself, what it sent, its mailboxes), or of the mailboxes beside. A rate_limit_warning is about none."`
	Mailboxes      []string `json:"mailboxes,omitempty" doc:"Ids of mailboxes: only events about one of them (what arrived there, its making, a migration into it), or of the domains beside."`
	IncludeContent *bool    `json:"include_content,omitempty" doc:"Whether inbound_email events hold what the message says. True needs the scope mail.read, and is the default for a key that has it."`
}

type createWebhookInput struct{ Body createWebhookRequest }

func (a *API) createWebhook(ctx context.Context, p account.Principal, in *createWebhookInput) (webhookResponse, error) {
	reads := p.HasScope(mailReadScope)
	n := webhook.Spec{URL: in.Body.URL, Kinds: in.Body.Events, Description: in.Body.Description, Content: reads}
	var err error
	if c := in.Body.IncludeContent; c != nil {
		if n.Content = *c; n.Content {
			err = p.RequireScope(mailReadScope)
		}
	}
	if err != nil {
		return webhookResponse{}, err
	}
	if n.Domains, n.Mailboxes, err = a.resolveWebhookFilter(ctx, p, in.Body.Domains, in.Body.Mailboxes); err != nil {
		return webhookResponse{}, err
	}
	if p.Domain != "" && len(n.Domains)+len(n.Mailboxes) == 0 {
		only, ok, err := a.keyDomainID(ctx, p)
		if err == nil && !ok {
			err = errDomainRestricted
		}
		if err != nil {
			return webhookResponse{}, err
		}
		n.Domains = []db.ID{only}
	}
	w, secret, err := a.Webhooks.Create(ctx, p.Account, n)
	out := newWebhookResponse(w)
	out.Secret = apijson.NullString(secret)
	return out, err
}

// resolveWebhookFilter parses the ids of a filter. Ids that the key can't see are treated as
// unknown.
func (a *API) resolveWebhookFilter(ctx context.Context, p account.Principal, domains, mailboxes []string) (d, m []db.ID, err error) {
	read := func(texts []string, find func(context.Context, account.Principal, *idParams) (db.ID, error)) ([]db.ID, error) {
		if len(texts) > webhook.MaxFilterIDs {
			return make([]db.ID, len(texts)), nil // rejected without a lookup
		}
		ids := make([]db.ID, len(texts))
		for i, text := range texts {
			id, err := find(ctx, p, &idParams{text})
			switch {
			case err == nil:
				ids[i] = id
			case !fault.Is(err, fault.NotFound): // an unknown id stays 0, which matches nothing
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

// canSeeFilter reports whether a filter is limited to domains and mailboxes that the key may see.
func (a *API) canSeeFilter(ctx context.Context, p account.Principal, domains, mailboxes []db.ID) (bool, error) {
	if p.Domain == "" {
		return true, nil
	}
	only, ok, err := a.keyDomainID(ctx, p)
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

// webhook returns a webhook that the principal may see.
func (a *API) webhook(ctx context.Context, p account.Principal, in *idParams) (webhook.Webhook, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return webhook.Webhook{}, err
	}
	w, err := a.Webhooks.Get(ctx, p.Account, id)
	if err != nil {
		return webhook.Webhook{}, err
	}
	ok, err := a.canSeeFilter(ctx, p, w.Domains, w.Mailboxes)
	if err == nil && !ok {
		err = errNotFound
	}
	return w, err
}

func (a *API) listWebhooks(ctx context.Context, p account.Principal, in *pageParams) (listResponse[webhookResponse], error) {
	hidden := map[db.ID]bool{}
	out, err := listPage(in, func(at db.Page) ([]webhook.Webhook, bool, error) {
		hooks, more, err := a.Webhooks.List(ctx, p.Account, at)
		for _, w := range hooks {
			ok, err := a.canSeeFilter(ctx, p, w.Domains, w.Mailboxes)
			if err != nil {
				return nil, false, err
			}
			hidden[w.ID] = !ok
		}
		return hooks, more, err
	}, newWebhookResponse, func(w webhook.Webhook) db.ID { return w.ID })
	out.Data = slices.DeleteFunc(out.Data, func(w webhookResponse) bool { return hidden[w.ID] })
	return out, err
}

func (a *API) getWebhook(ctx context.Context, p account.Principal, in *idParams) (webhookResponse, error) {
	w, err := a.webhook(ctx, p, in)
	return newWebhookResponse(w), err
}

type updateWebhookRequest struct {
	URL            *string   `json:"url,omitempty" doc:"Where events are sent; what waits goes there too." example:"https://app.example.com/hooks"`
	Events         *[]string `json:"events,omitempty" enum:"{event},all" doc:"All kinds of event that shall be sent." example:"bounce,complaint"`
	Description    *string   `json:"description,omitempty" doc:"What it is for." example:"the shop"`
	Domains        *[]string `json:"domains,omitempty" doc:"Ids of all domains that events may be about; empty for no such filter."`
	Mailboxes      *[]string `json:"mailboxes,omitempty" doc:"Ids of all mailboxes that events may be about; empty for no such filter."`
	IncludeContent *bool     `json:"include_content,omitempty" doc:"Whether inbound_email events hold what the message says. False holds at once, for deliveries that wait too. True needs the scope mail.read; so does changing url, events, domains or mailboxes while it is true."`
	Status         *string   `json:"status,omitempty" enum:"enabled,disabled" doc:"Enabling one forgets its failures, and what waits goes on."`
}

type updateWebhookInput struct {
	idParams
	Body updateWebhookRequest
}

func (b *updateWebhookRequest) change() webhook.Change {
	return webhook.Change{URL: b.URL, Kinds: b.Events, Description: b.Description, Content: b.IncludeContent, Status: b.Status}
}

func (a *API) updateWebhook(ctx context.Context, p account.Principal, in *updateWebhookInput) (webhookResponse, error) {
	w, err := a.webhook(ctx, p, &in.idParams)
	if err != nil {
		return webhookResponse{}, err
	}
	b := in.Body
	c := b.change()
	var texts [2][]string
	for i, given := range []*[]string{b.Domains, b.Mailboxes} {
		if given != nil {
			texts[i] = *given
		}
	}
	domains, mailboxes, err := a.resolveWebhookFilter(ctx, p, texts[0], texts[1])
	if err != nil {
		return webhookResponse{}, err
	}
	if b.Domains != nil {
		c.Domains = &domains
	}
	if b.Mailboxes != nil {
		c.Mailboxes = &mailboxes
	}
	c.Authorize = func(ctx context.Context, domains, mailboxes []db.ID) error {
		ok, err := a.canSeeFilter(ctx, p, domains, mailboxes)
		if err == nil && !ok {
			err = errDomainRestricted
		}
		return err
	}
	c.NoMailRead = !p.HasScope(mailReadScope)
	if c.OnlyDomain, _, err = a.keyDomainID(ctx, p); err != nil {
		return webhookResponse{}, err
	}
	w, err = a.Webhooks.Update(ctx, p.Account, w.ID, c)
	return newWebhookResponse(w), err
}

func (a *API) deleteWebhook(ctx context.Context, p account.Principal, in *idParams) (emptyResponse, error) {
	w, err := a.webhook(ctx, p, in)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Webhooks.Delete(ctx, p.Account, w.ID)
}

type rotateWebhookSecretRequest struct {
	OverlapHours *int `json:"overlap_hours,omitempty" minimum:"0" maximum:"24" doc:"How long the old secret signs as well, 0 to 24; 24 when left out." example:"24"`
}

type rotateWebhookSecretInput struct {
	idParams
	Body *rotateWebhookSecretRequest
}

func (a *API) rotateWebhookSecret(ctx context.Context, p account.Principal, in *rotateWebhookSecretInput) (webhookResponse, error) {
	w, err := a.webhook(ctx, p, &in.idParams)
	if err != nil {
		return webhookResponse{}, err
	}
	overlap := webhook.SecretOverlap
	if in.Body != nil && in.Body.OverlapHours != nil {
		hours := *in.Body.OverlapHours
		overlap = time.Duration(hours) * time.Hour
		if hours < 0 || overlap > webhook.SecretOverlap {
			var bad fault.FieldErrors
			bad.Add("overlap_hours", "out_of_range", "Give 0 to %d.", int(webhook.SecretOverlap/time.Hour))
			return webhookResponse{}, bad.Err()
		}
	}
	w, secret, err := a.Webhooks.RotateSecret(ctx, p.Account, w.ID, overlap)
	out := newWebhookResponse(w)
	out.Secret = apijson.NullString(secret)
	return out, err
}
