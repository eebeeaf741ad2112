// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// The states of a delivery.
const (
	Pending   = "pending"   // waits for its first or next attempt
	Delivered = "delivered" // the receiver accepted it
	Failed    = "failed"    // the last attempt failed, or it can no longer be sent
)

// States lists all states of a delivery.
var States = [...]string{Pending, Delivered, Failed}

// Delivery is the delivery of one event to one webhook.
type Delivery struct {
	ID        db.ID // the event's id, sent as X-Event-ID
	Webhook   db.ID
	Kind      string
	State     string
	Test      bool      // made by Test: the account's event log has no such event
	Content   bool      // its body has, or would have, the content of mail
	Domain    db.ID     // domain of the event; 0 for none, or if the event is no longer stored
	Attempts  int       // attempts so far
	NextAt    time.Time // when it is tried next at the earliest; zero unless it is pending and the webhook enabled
	Code      int       // HTTP status of the last attempt; 0 for none
	Error     string    // error of the last attempt; see Attempt
	CreatedAt time.Time
	UpdatedAt time.Time // time of the last attempt, or of the last other change
}

// Attempt is one delivery attempt.
type Attempt struct {
	Number    int // 1…
	StartedAt time.Time
	Duration  time.Duration
	Headers   map[string]string // headers sent
	Code      int               // HTTP status; 0 for no response
	// Error is a stable code for the failure, "" for success: see ErrorDNS and the codes after it.
	// Detail is a sentence for people.
	Error    string
	Detail   string
	Response string    // beginning of the response body, at most 2 KiB, as text
	NextAt   time.Time // time of the next attempt; zero for none
}

// maxShownAttempts is the maximum of attempts shown per delivery, the last ones.
const maxShownAttempts = 100

const selectDelivery = `SELECT id, webhook, kind, state, attempts, due_at, code, error, body <> '', created_at, updated_at,
		COALESCE((SELECT domain FROM event WHERE event.id = webhook_delivery.id), 0),
		kind = 'inbound_email' AND COALESCE(content, TRUE) AND (SELECT w.content FROM webhook AS w WHERE w.id = webhook_delivery.webhook) FROM webhook_delivery`

var (
	deliveriesQuery        = db.PagedSQL(selectDelivery + ` WHERE {clustered page webhook = $1}`)
	deliveriesByStateQuery = db.PagedSQL(selectDelivery + ` WHERE {clustered page webhook = $1, state = $4}`)
	deliveryQuery          = db.SQL(selectDelivery + ` WHERE webhook = $1 AND id = $2`)
	attemptsQuery          = db.SQL(`SELECT n, started_at, duration_us, headers, code, error, error_text, response, next_at
		FROM webhook_attempt WHERE webhook = $1 AND id = $2 ORDER BY n DESC LIMIT $3`)
	// A running attempt may settle the delivery before the new one begins.
	redeliverQuery = db.SQL(`UPDATE webhook_delivery SET state = 'pending', tries = 0, due_at = 0, updated_at = $3,
			content = (SELECT w.content FROM webhook AS w WHERE w.id = webhook_delivery.webhook)
		WHERE webhook = $1 AND id = $2`)
	// wakeDispatchQuery makes a node claim the webhook, if none has it.
	wakeDispatchQuery = db.SQL(`UPDATE webhook_dispatch SET arrivals = arrivals + 1,
			due_at = CASE WHEN due_at IS NULL OR due_at > $2 THEN CASE WHEN paused_until > $2 THEN paused_until ELSE $2 END ELSE due_at END
		WHERE webhook = $1`)
	// endPauseQuery also makes a node claim the webhook. The level stays: if the next attempt fails,
	// the next pause is no shorter.
	endPauseQuery = db.SQL(`UPDATE webhook_dispatch SET resumes = resumes + 1, paused_until = 0, arrivals = arrivals + 1, due_at = $2
		WHERE webhook = $1`)
)

var (
	errDeliveryNotFound = fault.New(fault.NotFound, "not_found", "There is no delivery with this id.")
	errDisabled         = fault.New(fault.Conflict, "webhook_disabled", "The webhook is disabled. Enable it first.")
	errPruned           = fault.New(fault.Conflict, "event_pruned", "The event is too old: it is no longer stored.")
)

// Deliveries returns a page of a webhook's deliveries, newest first: all, or those in a state. It
// returns a fault.NotFound if there is no such webhook.
func (h *Service) Deliveries(ctx context.Context, account, hook db.ID, state string, page db.Page) (deliveries []Delivery, more bool, err error) {
	w, err := h.Get(ctx, account, hook)
	if err != nil {
		return nil, false, err
	}
	scan := func(r db.Row) (Delivery, error) { return scanDelivery(r, w) }
	if state != "" {
		return db.ReadPage(ctx, h.o.DB, deliveriesByStateQuery, page, scan, hook, state)
	}
	return db.ReadPage(ctx, h.o.DB, deliveriesQuery, page, scan, hook)
}

// Delivery returns a delivery with its attempts, oldest first, but only the last 100. It returns a
// fault.NotFound if there is no such delivery.
func (h *Service) Delivery(ctx context.Context, account, hook, id db.ID) (Delivery, []Attempt, error) {
	d, err := h.delivery(ctx, account, hook, id)
	if err != nil {
		return Delivery{}, nil, err
	}
	attempts, err := db.All(ctx, h.o.DB, attemptsQuery.With(hook, id, maxShownAttempts), scanAttempt)
	slices.Reverse(attempts)
	return d, attempts, err
}

func (h *Service) delivery(ctx context.Context, account, hook, id db.ID) (Delivery, error) {
	w, err := h.Get(ctx, account, hook)
	if err != nil {
		return Delivery{}, err
	}
	return db.Find(ctx, h.o.DB, deliveryQuery.With(hook, id), errDeliveryNotFound, func(r db.Row) (Delivery, error) { return scanDelivery(r, w) })
}

// DeliveryBody returns the body of a delivery: the bytes that are signed. It returns nil if they
// contain the content of mail and the caller may not read mail, and a fault.Conflict if the event
// is no longer stored.
func (h *Service) DeliveryBody(ctx context.Context, account, hook, id db.ID, mail bool) ([]byte, error) {
	d, err := h.delivery(ctx, account, hook, id)
	if err != nil || d.Content && !d.Test && !mail {
		return nil, err
	}
	return h.body(ctx, account, hook, id, mail)
}

// Redeliver makes a delivery in any state pending again: it is tried at once, before the others and
// also while the webhook is paused, with the whole schedule ahead and the same body. Earlier
// attempts stay. Redeliver returns a fault.Conflict if the webhook is disabled, or the event is no
// longer stored.
func (h *Service) Redeliver(ctx context.Context, account, hook, id db.ID) (Delivery, error) {
	w, err := h.Get(ctx, account, hook)
	if err != nil {
		return Delivery{}, err
	}
	if _, err := h.DeliveryBody(ctx, account, hook, id, true); err != nil {
		return Delivery{}, err
	}
	if w.Status != StatusEnabled {
		return Delivery{}, errDisabled
	}
	now := db.Micros(h.o.Now())
	err = h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, redeliverQuery.With(hook, id, now), errDeliveryNotFound); err != nil {
			return err
		}
		tx.AfterCommit(func() { h.wake(hook) })
		return tx.Run(ctx, endPauseQuery.With(hook, now))
	})
	if err != nil {
		return Delivery{}, err
	}
	return h.delivery(ctx, account, hook, id)
}

// wake wakes the webhook's dispatcher, or a node that may claim the webhook, when a delivery is
// due.
func (h *Service) wake(hook db.ID) {
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook, ID: int64(hook)})
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook})
}

// Turning content off takes effect at once, also for waiting deliveries. Turning it on affects only
// deliveries that are created later.
var bodyQuery = db.SQL(`SELECT body, COALESCE(content, TRUE) AND (SELECT w.content FROM webhook AS w WHERE w.id = webhook_delivery.webhook)
	FROM webhook_delivery WHERE webhook = $1 AND id = $2`)

// body returns the body of a delivery. A test has a stored body. Other bodies come from the event's
// row, without the content of mail unless mail is set.
func (h *Service) body(ctx context.Context, account, hook, id db.ID, mail bool) ([]byte, error) {
	var body string
	var content bool
	if err := h.o.DB.One(ctx, bodyQuery.With(hook, id), &body, &content); err != nil {
		return nil, db.IfNoRow(err, errPruned)
	}
	if body != "" {
		return []byte(body), nil
	}
	e, err := h.o.Events.Get(ctx, account, id, content && mail)
	if fault.Is(err, fault.NotFound) {
		return nil, errPruned
	}
	if err != nil {
		return nil, err
	}
	return e.Body()
}

// scanDelivery scans a delivery of a webhook.
func scanDelivery(r db.Row, w Webhook) (d Delivery, err error) {
	err = r.Scan(&d.ID, &d.Webhook, &d.Kind, &d.State, &d.Attempts, db.TimeScanner(&d.NextAt), &d.Code, &d.Error, &d.Test,
		db.TimeScanner(&d.CreatedAt), db.TimeScanner(&d.UpdatedAt), &d.Domain, &d.Content)
	switch {
	case d.State != Pending || w.Status != StatusEnabled:
		d.NextAt = time.Time{}
	case d.NextAt.Before(d.UpdatedAt): // redelivered
		d.NextAt = d.UpdatedAt
	}
	if !d.NextAt.IsZero() && d.NextAt.Before(w.PausedUntil) {
		d.NextAt = w.PausedUntil
	}
	return d, err
}

func scanAttempt(r db.Row) (a Attempt, err error) {
	var micros int64
	var headers string
	if err := r.Scan(&a.Number, db.TimeScanner(&a.StartedAt), &micros, &headers, &a.Code, &a.Error, &a.Detail, &a.Response, db.TimeScanner(&a.NextAt)); err != nil {
		return a, err
	}
	a.Duration = time.Duration(micros) * time.Microsecond
	return a, json.Unmarshal([]byte(headers), &a.Headers)
}
