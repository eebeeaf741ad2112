// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Webhook is a URL of yours that receives events.
type Webhook struct {
	ID             string     `json:"id"`
	URL            string     `json:"url"`
	Description    string     `json:"description"`
	Events         []string   `json:"events"`          // types; "all" alone is every type
	Domains        []string   `json:"domains"`         // ids: only events about one of these domains,
	Mailboxes      []string   `json:"mailboxes"`       // or one of these mailboxes; every event if both are empty
	IncludeContent bool       `json:"include_content"` // inbound_email events include the message's content
	Status         string     `json:"status"`          // enabled or disabled
	DisabledReason string     `json:"disabled_reason"` // manual; gone: it responded 410; failing: for five days
	DisabledAt     *time.Time `json:"disabled_at"`
	FailingSince   *time.Time `json:"failing_since"` // first failure since the last success
	PausedUntil    *time.Time `json:"paused_until"`  // nothing is sent before this; nil for no pause
	Secret         string     `json:"secret"`        // only in the response that created it
	OldSecretUntil *time.Time `json:"old_secret_until"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

// NewWebhook is a webhook to create.
type NewWebhook struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // types of event, or "all"
	Description string   `json:"description,omitempty"`
	Domains     []string `json:"domains,omitempty"`   // ids: only events about one of these domains,
	Mailboxes   []string `json:"mailboxes,omitempty"` // or one of these mailboxes
	// IncludeContent is whether inbound_email events include the message's content: true needs the
	// scope mail.read, and nil means true for a key with that scope.
	IncludeContent *bool `json:"include_content,omitempty"`
}

// WebhookChange are changes to a webhook; nil leaves a field unchanged.
type WebhookChange struct {
	URL         *string   `json:"url,omitempty"`
	Events      *[]string `json:"events,omitempty"`
	Description *string   `json:"description,omitempty"`
	Domains     *[]string `json:"domains,omitempty"`
	Mailboxes   *[]string `json:"mailboxes,omitempty"`
	// IncludeContent takes effect at once if it is false; true needs the scope mail.read.
	IncludeContent *bool   `json:"include_content,omitempty"`
	Status         *string `json:"status,omitempty"` // enabled or disabled
}

// WebhookDelivery is the delivery of an event to a webhook.
type WebhookDelivery struct {
	ID             string     `json:"id"` // event id
	WebhookID      string     `json:"webhook_id"`
	Type           string     `json:"type"`   // event type
	Test           bool       `json:"test"`   // test event
	Status         string     `json:"status"` // pending, delivered or failed
	Attempts       int        `json:"attempts"`
	ResponseStatus int        `json:"response_status"` // HTTP status of the last attempt; 0 without a response
	Reason         string     `json:"reason"`          // stable error code of the last attempt
	NextAttemptAt  *time.Time `json:"next_attempt_at"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

// WebhookDeliveryDetail is a delivery with all its details.
type WebhookDeliveryDetail struct {
	WebhookDelivery
	Body     string           `json:"body"`     // request body, byte for byte; "" if the event is no longer stored
	Timeline []WebhookAttempt `json:"timeline"` // all attempts, oldest first
}

// WebhookAttempt is one request to a receiver.
type WebhookAttempt struct {
	Number         int               `json:"number"` // from 1
	StartedAt      time.Time         `json:"started_at"`
	DurationMS     float64           `json:"duration_ms"`
	RequestHeaders map[string]string `json:"request_headers"`
	ResponseStatus int               `json:"response_status"` // 0 without a response
	ResponseBody   string            `json:"response_body"`   // its beginning
	Reason         string            `json:"reason"`          // stable code; "" for success
	Detail         string            `json:"detail"`          // error for people
	NextAttemptAt  *time.Time        `json:"next_attempt_at"` // as planned at that time
}

// WebhookReplay is the result of a replay.
type WebhookReplay struct {
	Deliveries int       `json:"deliveries"` // deliveries made pending
	Through    time.Time `json:"through"`    // time of the last event examined
	HasMore    bool      `json:"has_more"`   // there are later ones: replay again since Through
}

// CreateWebhook creates a webhook. Its secret is only in this response.
func (c *Client) CreateWebhook(ctx context.Context, w NewWebhook) (*Webhook, error) {
	return post[Webhook](ctx, c, "/webhooks", "", w, false)
}

// ListWebhooks returns a page of webhooks, newest first.
func (c *Client) ListWebhooks(ctx context.Context, p Paging) (*Page[Webhook], error) {
	return list[Webhook](ctx, c, "/webhooks", nil, p)
}

// Webhooks iterates over all webhooks, newest first. It stops after an error.
func (c *Client) Webhooks(ctx context.Context) iter.Seq2[Webhook, error] {
	return walk(func(p Paging) (*Page[Webhook], error) { return c.ListWebhooks(ctx, p) })
}

// GetWebhook returns a webhook.
func (c *Client) GetWebhook(ctx context.Context, id string) (*Webhook, error) {
	return do[Webhook](ctx, c, call{method: http.MethodGet, path: "/webhooks/{id}", id: id})
}

// UpdateWebhook changes a webhook, or enables a disabled one.
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

// TestWebhook sends a test event of a type ("": one that the webhook receives); its data has test:
// true. It returns once the receiver has responded.
func (c *Client) TestWebhook(ctx context.Context, id, kind string) (*WebhookDeliveryDetail, error) {
	return post[WebhookDeliveryDetail](ctx, c, "/webhooks/{id}/test", id, struct {
		Event string `json:"event,omitempty"`
	}{kind}, false)
}

// RotateWebhookSecret generates a new secret, which is only in this response. During overlap, whole
// hours up to 24, requests are also signed with the old one, as in Standard Webhooks.
func (c *Client) RotateWebhookSecret(ctx context.Context, id string, overlap time.Duration) (*Webhook, error) {
	return post[Webhook](ctx, c, "/webhooks/{id}/rotate-secret", id, struct {
		Hours int `json:"overlap_hours"`
	}{int(overlap / time.Hour)}, false)
}

// WebhookDeliveryFilter selects deliveries; the zero value selects all.
type WebhookDeliveryFilter struct {
	Statuses []string // any of pending, delivered and failed
}

// ListWebhookDeliveries returns a page of a webhook's deliveries, newest first, without bodies and
// attempts.
func (c *Client) ListWebhookDeliveries(ctx context.Context, id string, f WebhookDeliveryFilter, p Paging) (*Page[WebhookDelivery], error) {
	q := url.Values{}
	setList(q, "status", f.Statuses)
	return do[Page[WebhookDelivery]](ctx, c, call{method: http.MethodGet, path: "/webhooks/{id}/deliveries", id: id, query: p.into(q)})
}

// WebhookDeliveries iterates over a webhook's deliveries, newest first. It stops after an error.
func (c *Client) WebhookDeliveries(ctx context.Context, id string, f WebhookDeliveryFilter) iter.Seq2[WebhookDelivery, error] {
	return walk(func(p Paging) (*Page[WebhookDelivery], error) { return c.ListWebhookDeliveries(ctx, id, f, p) })
}

// GetWebhookDelivery returns a delivery with its request body and every attempt.
func (c *Client) GetWebhookDelivery(ctx context.Context, webhook, delivery string) (*WebhookDeliveryDetail, error) {
	return do[WebhookDeliveryDetail](ctx, c, call{method: http.MethodGet, path: "/webhooks/{id}/deliveries/" + url.PathEscape(delivery), id: webhook})
}

// RedeliverWebhookDelivery sends an event again, at once, regardless of its status.
func (c *Client) RedeliverWebhookDelivery(ctx context.Context, webhook, delivery string) (*WebhookDelivery, error) {
	return do[WebhookDelivery](ctx, c, call{method: http.MethodPost, path: "/webhooks/{id}/deliveries/" + url.PathEscape(delivery) + "/redeliver", id: webhook})
}

// ReplayWebhook sends the events since a time again, those that match the webhook's current
// settings; with missing, only those not delivered yet.
func (c *Client) ReplayWebhook(ctx context.Context, id string, since time.Time, missing bool) (*WebhookReplay, error) {
	q := url.Values{"created_after": {since.UTC().Format(time.RFC3339Nano)}}
	if missing {
		q.Set("missing", "true")
	}
	return do[WebhookReplay](ctx, c, call{method: http.MethodPost, path: "/webhooks/{id}/replay", id: id, query: q})
}
