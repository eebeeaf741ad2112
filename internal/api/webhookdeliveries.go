// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

func (a *API) webhookDeliveryRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/webhooks/{id}/test", id: "testWebhook", scope: "webhooks.write", mayConflict: true,
		summary: "Send a test", description: "An event that did not happen, of the kind that you choose, with `\"test\": true` in its data, is sent now, signed like any other. " +
			"The answer says what the receiver said. It is tried once, also when the webhook is disabled."}, a.testWebhook)
	handle(r, operation{method: "GET", path: "/webhooks/{id}/deliveries", id: "listWebhookDeliveries", scope: "webhooks.read",
		summary: "List a webhook's deliveries", description: "Newest first: what was delivered, what waits for its next attempt, what was given up. A key of one domain sees those about that domain."}, a.listWebhookDeliveries)
	handle(r, operation{method: "GET", path: "/webhooks/{id}/deliveries/{delivery}", id: "getWebhookDelivery", scope: "webhooks.read",
		summary: "Show a delivery with every attempt", description: "What was sent, what came back, how long it took, and when it is tried again. Of more than 100 attempts the last are shown."}, a.getWebhookDelivery)
	handle(r, operation{method: "POST", path: "/webhooks/{id}/deliveries/{delivery}/redeliver", id: "redeliverWebhookDelivery", scope: "webhooks.write", mayConflict: true,
		summary: "Send an event again", description: "Whatever became of it, it is tried at once, with the same id and the same body, and with the whole schedule before it."}, a.redeliverWebhookDelivery)
	handle(r, operation{method: "POST", path: "/webhooks/{id}/replay", id: "replayWebhook", validatesFirst: true, scope: "webhooks.write", mayConflict: true,
		summary: "Send all events since a time", description: "Those that the webhook is for as it is now, also those from before it was made or while it was disabled, as far back as events are kept. One call looks at 50,000 events: while `has_more` is true, go on since `through`."}, a.replayWebhook)
}

// WebhookDeliveryResponse is a delivery in a list.
type WebhookDeliveryResponse struct {
	ID             db.ID      `json:"id" doc:"The event's id, which is X-Event-ID."`
	WebhookID      db.ID      `json:"webhook_id" doc:"The webhook."`
	Type           string     `json:"type" enum:"{event}" doc:"The kind of event."`
	Test           bool       `json:"test" doc:"Whether it was a test: the event did not happen."`
	Status         string     `json:"status" enum:"pending,delivered,failed" doc:"pending: to be tried, for the first time or again; delivered: the receiver took it; failed: given up."`
	Attempts       int        `json:"attempts" doc:"How often it was tried." example:"1"`
	ResponseStatus *int       `json:"response_status" doc:"The HTTP status of the last attempt; null if there was no answer." example:"204"`
	Reason         *string    `json:"reason" doc:"Stable name of what was wrong with the last attempt; null for nothing: dns, address_not_allowed, connection_refused, unreachable, tls, timeout, connection_closed, invalid_answer, redirect, gone, status or event_pruned." example:"timeout"`
	NextAttemptAt  *time.Time `json:"next_attempt_at" doc:"When it is tried next, at the earliest: never before the webhook's paused_until; null if it will not be tried again."`
	CreatedAt      time.Time  `json:"created_at" doc:"When it was made."`
	UpdatedAt      time.Time  `json:"updated_at" doc:"When it last changed."`
}

func newWebhookDeliveryResponse(d webhook.Delivery) WebhookDeliveryResponse {
	return WebhookDeliveryResponse{
		ID: d.ID, WebhookID: d.Webhook, Type: d.Kind, Test: d.Test, Status: d.State, Attempts: d.Attempts,
		ResponseStatus: optionalInt(d.Code), Reason: optionalString(d.Error), NextAttemptAt: optionalTime(d.NextAt),
		CreatedAt: utcTime(d.CreatedAt), UpdatedAt: utcTime(d.UpdatedAt),
	}
}

// optionalInt converts 0 to null.
func optionalInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

type webhookAttemptResponse struct {
	Number         int               `json:"number" doc:"1 for the first." example:"1"`
	StartedAt      time.Time         `json:"started_at" doc:"When it was made."`
	DurationMS     float64           `json:"duration_ms" doc:"How long it took, in milliseconds." example:"41.7"`
	RequestHeaders map[string]string `json:"request_headers" doc:"The headers that were sent."`
	ResponseStatus *int              `json:"response_status" doc:"The HTTP status; null if there was no answer." example:"500"`
	ResponseBody   string            `json:"response_body" doc:"The beginning of the answer, at most 2 KiB." example:"out of order"`
	Reason         *string           `json:"reason" doc:"Stable name of what was wrong, as in the delivery's reason; null for nothing." example:"status"`
	Detail         *string           `json:"detail" doc:"The same in words." example:"The receiver answered with status 500 (Internal Server Error)."`
	NextAttemptAt  *time.Time        `json:"next_attempt_at" doc:"When it was to be tried again; null for never."`
}

func newWebhookAttemptResponse(t webhook.Attempt) webhookAttemptResponse {
	headers := t.Headers
	if headers == nil {
		headers = map[string]string{}
	}
	return webhookAttemptResponse{
		Number: t.Number, StartedAt: utcTime(t.StartedAt), DurationMS: float64(t.Duration.Microseconds()) / 1000, RequestHeaders: headers,
		ResponseStatus: optionalInt(t.Code), ResponseBody: t.Response, Reason: optionalString(t.Error), Detail: optionalString(t.Detail), NextAttemptAt: optionalTime(t.NextAt),
	}
}

type webhookDeliveryDetailResponse struct {
	WebhookDeliveryResponse
	Body     *string                  `json:"body" doc:"What is sent, byte for byte; null if the event is no longer kept, or holds the content of mail and the key lacks the scope mail.read."`
	Timeline []webhookAttemptResponse `json:"timeline" doc:"Every attempt, oldest first."`
}

// webhookDeliveryDetail returns a delivery with all details.
func (a *API) webhookDeliveryDetail(ctx context.Context, p account.Principal, hook, id db.ID) (webhookDeliveryDetailResponse, error) {
	d, attempts, err := a.Webhooks.Delivery(ctx, p.Account, hook, id)
	if err != nil {
		return webhookDeliveryDetailResponse{}, err
	}
	out := webhookDeliveryDetailResponse{WebhookDeliveryResponse: newWebhookDeliveryResponse(d), Timeline: []webhookAttemptResponse{}}
	for _, t := range attempts {
		out.Timeline = append(out.Timeline, newWebhookAttemptResponse(t))
	}
	switch body, err := a.Webhooks.DeliveryBody(ctx, p.Account, hook, id, p.HasScope(mailReadScope)); {
	case err == nil && body == nil: // withheld content
	case err == nil:
		text := string(body)
		out.Body = &text
	case !fault.Is(err, fault.Conflict): // the fault says that the body is no longer stored
		return webhookDeliveryDetailResponse{}, err
	}
	return out, nil
}

type testWebhookRequest struct {
	Event string `json:"event,omitempty" enum:"{event}" doc:"The kind of event; the first that the webhook is for when left out."`
}

type testWebhookInput struct {
	idParams
	Body *testWebhookRequest
}

func (a *API) testWebhook(ctx context.Context, p account.Principal, in *testWebhookInput) (webhookDeliveryDetailResponse, error) {
	w, err := a.webhook(ctx, p, &in.idParams)
	if err != nil {
		return webhookDeliveryDetailResponse{}, err
	}
	kind := ""
	if in.Body != nil {
		kind = in.Body.Event
	}
	d, _, err := a.Webhooks.Test(ctx, p.Account, w.ID, kind)
	if err != nil {
		return webhookDeliveryDetailResponse{}, err
	}
	return a.webhookDeliveryDetail(ctx, p, w.ID, d.ID)
}

type listWebhookDeliveriesInput struct {
	idParams
	pageParams
	Status []string `query:"status" enum:"pending,delivered,failed" doc:"Only deliveries that stand in one of these ways, separated by commas." example:"pending,failed"`
}

func (a *API) listWebhookDeliveries(ctx context.Context, p account.Principal, in *listWebhookDeliveriesInput) (listResponse[WebhookDeliveryResponse], error) {
	w, err := a.webhook(ctx, p, &in.idParams)
	if err != nil {
		return listResponse[WebhookDeliveryResponse]{}, err
	}
	var bad fault.FieldErrors
	read := func(status string) pageReader[webhook.Delivery] {
		return func(at db.Page) ([]webhook.Delivery, bool, error) {
			return a.Webhooks.Deliveries(ctx, p.Account, w.ID, status, at)
		}
	}
	id := func(d webhook.Delivery) db.ID { return d.ID }
	at, err := in.dbPage(read("").exists(id)) // the status of an entry changes
	if err := mergeFaults(&bad, err); err != nil {
		return listResponse[WebhookDeliveryResponse]{}, err
	}
	if err := bad.Err(); err != nil {
		return listResponse[WebhookDeliveryResponse]{}, err
	}
	only, _, err := a.keyDomainID(ctx, p)
	if err != nil {
		return listResponse[WebhookDeliveryResponse]{}, err
	}
	hidden := map[db.ID]bool{}
	out, err := listPageAt(&in.pageParams, at, func(at db.Page) ([]webhook.Delivery, bool, error) {
		found, more, err := readAny(in.Status, "", id, read)(at)
		for _, d := range found {
			hidden[d.ID] = p.Domain != "" && !canSeeDelivery(only, d)
		}
		return found, more, err
	}, newWebhookDeliveryResponse, id)
	out.Data = slices.DeleteFunc(out.Data, func(d WebhookDeliveryResponse) bool { return hidden[d.ID] })
	return out, err
}

// canSeeDelivery reports whether a domain-restricted key that sees a webhook may see one of its
// deliveries. The webhook may have covered other domains earlier.
func canSeeDelivery(only db.ID, d webhook.Delivery) bool { return d.Test || d.Domain == only }

type webhookDeliveryInput struct {
	idParams
	Delivery string `path:"delivery" format:"uuid" doc:"The delivery's id, which is the event's."`
}

// webhookDelivery returns the ids of a webhook and a delivery, if the principal may see both.
func (a *API) webhookDelivery(ctx context.Context, p account.Principal, in *webhookDeliveryInput) (hook, id db.ID, err error) {
	w, err := a.webhook(ctx, p, &in.idParams)
	if err == nil {
		id, err = db.ParseID(in.Delivery)
	}
	if err != nil || p.Domain == "" {
		return w.ID, id, err
	}
	d, _, err := a.Webhooks.Delivery(ctx, p.Account, w.ID, id)
	if err != nil {
		return w.ID, id, err
	}
	only, _, err := a.keyDomainID(ctx, p)
	if err == nil && !canSeeDelivery(only, d) {
		err = errNotFound
	}
	return w.ID, id, err
}

func (a *API) getWebhookDelivery(ctx context.Context, p account.Principal, in *webhookDeliveryInput) (webhookDeliveryDetailResponse, error) {
	hook, id, err := a.webhookDelivery(ctx, p, in)
	if err != nil {
		return webhookDeliveryDetailResponse{}, err
	}
	return a.webhookDeliveryDetail(ctx, p, hook, id)
}

func (a *API) redeliverWebhookDelivery(ctx context.Context, p account.Principal, in *webhookDeliveryInput) (WebhookDeliveryResponse, error) {
	hook, id, err := a.webhookDelivery(ctx, p, in)
	if err != nil {
		return WebhookDeliveryResponse{}, err
	}
	d, err := a.Webhooks.Redeliver(ctx, p.Account, hook, id)
	return newWebhookDeliveryResponse(d), err
}

type replayWebhookInput struct {
	idParams
	CreatedAfter string `query:"created_after" format:"date-time" required:"true" doc:"Events from this time on." example:"2026-01-31T00:00:00Z"`
	Missing      bool   `query:"missing" doc:"Leave out what was delivered."`
}

type webhookReplayResponse struct {
	Deliveries int       `json:"deliveries" doc:"How many events are sent because of this." example:"12"`
	Through    time.Time `json:"through" doc:"Up to when events were looked at."`
	HasMore    bool      `json:"has_more" doc:"Whether there are later ones: replay again with created_after set to through."`
}

func (a *API) replayWebhook(ctx context.Context, p account.Principal, in *replayWebhookInput) (webhookReplayResponse, error) {
	w, err := a.webhook(ctx, p, &in.idParams)
	if err != nil {
		return webhookReplayResponse{}, err
	}
	var bad fault.FieldErrors
	since, err := time.Parse(time.RFC3339, in.CreatedAfter)
	switch {
	case in.CreatedAfter == "":
		bad.Add("created_after", "required", "Say since when.")
	case err != nil || since.Year() < 1970:
		bad.Add("created_after", "invalid_time", "Give a time such as 2026-01-31T09:00:00Z (RFC 3339).")
	}
	if err := bad.Err(); err != nil {
		return webhookReplayResponse{}, err
	}
	done, err := a.Webhooks.Replay(ctx, p.Account, w.ID, since, in.Missing)
	return webhookReplayResponse{done.Deliveries, utcTime(done.Through), done.More}, err
}
