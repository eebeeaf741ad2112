// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// outcome is an attempt's end as it is written.
type outcome struct {
	finishedAttempt
	lease          db.ID
	revision       int64
	n              int // the attempt
	tries          int
	state          string
	nextAt         time.Time // while it is pending
	circuit        circuit
	circuitChanged bool                     // the circuit is not as its row says
	latestCircuit  *atomic.Pointer[circuit] // of the lane
	disableReason  string                   // the reason to disable the webhook; "" for none
	err            error                    // of writing it
}

var (
	settleDeliveryQuery = db.SQL(`UPDATE webhook_delivery SET state = $6, attempts = attempts + 1, tries = tries + 1, due_at = $7, code = $8,
			trouble = $9, updated_at = $10
		WHERE webhook = $1 AND id = $2 AND state = 'pending' AND attempts = $4 AND tries = $5
			AND EXISTS (SELECT 1 FROM webhook_lane WHERE webhook = $1 AND tenure = $3)`)
	insertAttemptQuery = db.SQL(`INSERT INTO webhook_attempt (webhook, id, n, started_at, micros, headers, code, trouble, words, response, next_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`)
	updateCircuitQuery = db.SQL(`UPDATE webhook_lane SET failing_since = $4, level = $5, rest_until = $6
		WHERE webhook = $1 AND tenure = $2 AND life = $3`)
	disableWebhookQuery = db.SQL(`UPDATE webhook SET status = 'disabled', reason = $3, status_at = $4, revision = revision + 1
		WHERE id = $1 AND revision = $2 AND status = 'enabled' RETURNING account`)
)

// settle writes an outcome, its attempt, and what they mean for the webhook in
// one commit. It tries until that is done, or errSuperseded says that the
// delivery is another's by now, or the service ends.
func (h *Service) settle(hook db.ID, o *outcome) (err error) {
	if h.onSettled != nil {
		defer func() { h.onSettled(hook, o, err) }()
	}
	for {
		var disabled db.ID // the account whose webhook it was; 0: it is not
		err = h.o.DB.Write(h.writeCtx, hook, &db.Mutation{
			Guard: func(b *db.Batch) {
				b.Queue(settleDeliveryQuery.With(hook, o.item.id, o.lease, o.item.attempts, o.item.tries,
					o.state, db.Micros(o.nextAt), o.result.code, o.result.errorCode, db.Micros(o.result.endedAt))).OrFail(errSuperseded)
			},
			Apply: func(b *db.Batch) {
				b.Queue(insertAttemptQuery.With(o.attemptRow(hook)...))
				if o.circuitChanged { // of outcomes that are written out of their order the last one holds
					c := o.latestCircuit.Load()
					b.Queue(updateCircuitQuery.With(hook, o.lease, o.generation, db.Micros(c.failingSince), c.level, db.Micros(c.pausedUntil)))
				}
				if disabled = 0; o.disableReason != "" {
					b.Queue(disableWebhookQuery.With(hook, o.revision, o.disableReason, db.Micros(o.result.endedAt))).Each(func(r db.Row) error { return r.Scan(&disabled) })
				}
			},
		})
		if err == nil && disabled != 0 {
			h.notifyDisabled(disabled, hook, o)
		}
		// After an unknown outcome the row tells how it is.
		if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, db.ErrCommitUnknown) || h.writeCtx.Err() != nil {
			return err
		}
		h.o.Log.Error("the outcome of a delivery could not be written", "webhook", hook, "event", o.item.id, "error", err)
		_ = notify.Sleep(h.writeCtx, errorDelay)
	}
}

// notifyDisabled gives notice of a webhook that was disabled. That stands in its row,
// whether or not anybody could be told.
func (h *Service) notifyDisabled(account, hook db.ID, o *outcome) {
	h.o.Log.Warn("a webhook was disabled", "webhook", hook, "reason", o.disableReason, "failing_since", o.circuit.failingSince)
	w, err := h.Get(h.writeCtx, account, hook)
	if err == nil && h.o.Disabled != nil {
		err = h.o.Disabled(h.writeCtx, w)
	}
	if err != nil {
		h.o.Log.Error("giving notice of a disabled webhook failed", "webhook", hook, "error", err)
	}
}

// attemptRow is the row of the attempt.
func (o *outcome) attemptRow(hook db.ID) []any {
	a := &o.result
	return []any{hook, o.item.id, o.n, db.Micros(a.startedAt), a.endedAt.Sub(a.startedAt).Microseconds(), a.headers, a.code, a.errorCode, a.detail,
		a.body, db.Micros(o.nextAt)}
}
