// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Webhook is a URL of yours that events are sent to.
type Webhook struct {
	ID             string     `json:"id"`
	URL            string     `json:"url"`
	Description    string     `json:"description"`
	Events         []string   `json:"events"`          // kinds; "all" alone is every kind
	Domains        []string   `json:"domains"`         // ids: only events about one of these domains,
	Mailboxes      []string   `json:"mailboxes"`       // or one of these mailboxes; every event if both are empty
	IncludeContent bool       `json:"include_content"` // inbound_email events hold what the message says
	Status         string     `json:"status"`          // enabled or disabled
	DisabledReason string     `json:"disabled_reason"` // manual; gone: it answered 410; failing: for five days
	DisabledAt     *time.Time `json:"disabled_at"`
	FailingSince   *time.Time `json:"failing_since"` // the first failure since the last success
	Secret         string     `json:"secret"`        // in the answer that made it, and nowhere else
	OldSecretUntil *time.Time `json:"old_secret_until"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

// NewWebhook is a webhook to be made.
type NewWebhook struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // kinds of event, or "all"
	Description string   `json:"description,omitempty"`
	Domains     []string `json:"domains,omitempty"`   // ids: only events about one of these domains,
	Mailboxes   []string `json:"mailboxes,omitempty"` // or one of these mailboxes
	// IncludeContent is whether inbound_email events hold what the message says: true
	// needs the scope mail.read, and nil is true for a key that has it.
	IncludeContent *bool `json:"include_content,omitempty"`
}

// WebhookChange says what becomes different; nil leaves a field as it is.
type WebhookChange struct {
	URL         *string   `json:"url,omitempty"`
	Events      *[]string `json:"events,omitempty"`
	Description *string   `json:"description,omitempty"`
	Domains     *[]string `json:"domains,omitempty"`
	Mailboxes   *[]string `json:"mailboxes,omitempty"`
	// IncludeContent holds at once if it is false; true needs the scope mail.read.
	IncludeContent *bool   `json:"include_content,omitempty"`
	Status         *string `json:"status,omitempty"` // enabled or disabled
}

// WebhookDeliveryResponse is an event on its way to a webhook.
type WebhookDelivery struct {
	ID             string     `json:"id"` // the event's
	WebhookID      string     `json:"webhook_id"`
	Type           string     `json:"type"`   // of the event
	Test           bool       `json:"test"`   // the event did not happen
	Status         string     `json:"status"` // pending, delivered or failed
	Attempts       int        `json:"attempts"`
	ResponseStatus int        `json:"response_status"` // HTTP status of the last attempt; 0 if there was no answer
	Error          string     `json:"error"`           // stable name of what was wrong with the last attempt
	NextAttemptAt  *time.Time `json:"next_attempt_at"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

// WebhookDeliveryDetail is a delivery with all that is known of it.
type WebhookDeliveryDetail struct {
	WebhookDelivery
	Body     string           `json:"body"`     // what is sent, byte for byte; "" if the event is no longer kept
	Timeline []WebhookAttempt `json:"timeline"` // every attempt, oldest first
}

// WebhookAttempt is one request to a receiver.
type WebhookAttempt struct {
	Number         int               `json:"number"` // from 1
	StartedAt      time.Time         `json:"started_at"`
	DurationMS     float64           `json:"duration_ms"`
	RequestHeaders map[string]string `json:"request_headers"`
	ResponseStatus int               `json:"response_status"` // 0 if there was no answer
	ResponseBody   string            `json:"response_body"`   // its beginning
	Error          string            `json:"error"`           // stable name; "" for success
	Detail         string            `json:"detail"`          // the same in words
	NextAttemptAt  *time.Time        `json:"next_attempt_at"` // as it was planned then
}

// Replayed says what a replay did.
type Replayed struct {
	Deliveries int       `json:"deliveries"` // events that are sent because of it
	Through    time.Time `json:"through"`    // up to when events were looked at
	HasMore    bool      `json:"has_more"`   // there are later ones: replay again since Through
}

// CreateWebhook makes a webhook. This answer alone shows its secret.
func (c *Client) CreateWebhook(ctx context.Context, w NewWebhook) (*Webhook, error) {
	return post[Webhook](ctx, c, "/webhooks", "", w, false)
}

// ListWebhooks returns a page of webhooks, newest first.
func (c *Client) ListWebhooks(ctx context.Context, p Paging) (*Page[Webhook], error) {
	return list[Webhook](ctx, c, "/webhooks", nil, p)
}

// Webhooks walks through all webhooks, newest first. After an error it ends.
func (c *Client) Webhooks(ctx context.Context) iter.Seq2[Webhook, error] {
	return walk(func(p Paging) (*Page[Webhook], error) { return c.ListWebhooks(ctx, p) })
}

// GetWebhook shows a webhook.
func (c *Client) GetWebhook(ctx context.Context, id string) (*Webhook, error) {
	return do[Webhook](ctx, c, call{method: http.MethodGet, path: "/webhooks/{id}", id: id})
}

// UpdateWebhook changes a webhook, or enables one that was disabled.
func (c *Client) UpdateWebhook(ctx context.Context, id string, change WebhookChange) (*Webhook, error) {
	b, err := jsonBody(change)
	if err != nil {
		return nil, err
	}
	return do[Webhook](ctx, c, call{method: http.MethodPatch, path: "/webhooks/{id}", id: id, body: b, again: true})
}

// DeleteWebhook deletes a webhook with its deliveries.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/webhooks/{id}", id: id})
}

// TestWebhook sends an event of a kind ("": one that the webhook is for) that
// didn't happen: its data has test: true. It returns when the receiver has answered.
func (c *Client) TestWebhook(ctx context.Context, id, kind string) (*WebhookDeliveryDetail, error) {
	return post[WebhookDeliveryDetail](ctx, c, "/webhooks/{id}/test", id, struct {
		Event string `json:"event,omitempty"`
	}{kind}, false)
}

// RotateWebhookSecret makes a new secret, which this answer alone shows. For
// overlap, whole hours up to 24, the old one signs as well, as Standard
// Webhooks have it.
func (c *Client) RotateWebhookSecret(ctx context.Context, id string, overlap time.Duration) (*Webhook, error) {
	return post[Webhook](ctx, c, "/webhooks/{id}/rotate-secret", id, struct {
		Hours int `json:"overlap_hours"`
	}{int(overlap / time.Hour)}, false)
}

// WebhookDeliveryFilter says which deliveries are wanted; the zero value is all.
type WebhookDeliveryFilter struct {
	Status string // pending, delivered or failed
}

// ListWebhookDeliveries returns a page of a webhook's deliveries, newest first,
// without their bodies and attempts.
func (c *Client) ListWebhookDeliveries(ctx context.Context, id string, f WebhookDeliveryFilter, p Paging) (*Page[WebhookDelivery], error) {
	q := url.Values{}
	set(q, "status", f.Status)
	return do[Page[WebhookDelivery]](ctx, c, call{method: http.MethodGet, path: "/webhooks/{id}/deliveries", id: id, query: p.into(q)})
}

// WebhookDeliveries walks through a webhook's deliveries, newest first. After
// an error it ends.
func (c *Client) WebhookDeliveries(ctx context.Context, id string, f WebhookDeliveryFilter) iter.Seq2[WebhookDelivery, error] {
	return walk(func(p Paging) (*Page[WebhookDelivery], error) { return c.ListWebhookDeliveries(ctx, id, f, p) })
}

// GetWebhookDelivery shows a delivery with what is sent and every attempt.
func (c *Client) GetWebhookDelivery(ctx context.Context, webhook, delivery string) (*WebhookDeliveryDetail, error) {
	return do[WebhookDeliveryDetail](ctx, c, call{method: http.MethodGet, path: "/webhooks/{id}/deliveries/" + url.PathEscape(delivery), id: webhook})
}

// RedeliverWebhookDelivery sends an event again, at once, whatever became of
// it.
func (c *Client) RedeliverWebhookDelivery(ctx context.Context, webhook, delivery string) (*WebhookDelivery, error) {
	return do[WebhookDelivery](ctx, c, call{method: http.MethodPost, path: "/webhooks/{id}/deliveries/" + url.PathEscape(delivery) + "/redeliver", id: webhook})
}

// ReplayWebhook sends the events since a time again, those that the webhook is
// for as it is now; with missing, only those that it did not take yet.
func (c *Client) ReplayWebhook(ctx context.Context, id string, since time.Time, missing bool) (*Replayed, error) {
	q := url.Values{"since": {since.UTC().Format(time.RFC3339Nano)}}
	if missing {
		q.Set("missing", "true")
	}
	return do[Replayed](ctx, c, call{method: http.MethodPost, path: "/webhooks/{id}/replay", id: id, query: q})
}
