// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// outcome is the result of an attempt as it is written.
type outcome struct {
	finishedAttempt
	lease          db.ID
	revision       int64
	n              int // number of the attempt
	tries          int
	state          string
	nextAt         time.Time // time of the next attempt, while pending
	circuit        circuitBreaker
	circuitChanged bool                            // the circuit differs from its row
	latestCircuit  *atomic.Pointer[circuitBreaker] // latest circuit of the dispatcher
	disableReason  string                          // the reason to disable the webhook; "" for none
	err            error                           // error from writing the outcome
}

var (
	settleDeliveryQuery = db.SQL(`UPDATE webhook_delivery SET state = $6, attempts = attempts + 1, tries = tries + 1, due_at = $7, code = $8,
			error = $9, updated_at = $10
		WHERE webhook = $1 AND id = $2 AND state = 'pending' AND attempts = $4 AND tries = $5
			AND EXISTS (SELECT 1 FROM webhook_dispatch WHERE webhook = $1 AND lease = $3)`)
	insertAttemptQuery = db.SQL(`INSERT INTO webhook_attempt (webhook, id, n, started_at, duration_us, headers, code, error, error_text, response, next_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`)
	// A pause that began before somebody ended it must not begin again.
	updateCircuitQuery = db.SQL(`UPDATE webhook_dispatch SET failing_since = $4, level = $5,
			paused_until = CASE WHEN resumes = $7 THEN $6 ELSE paused_until END
		WHERE webhook = $1 AND lease = $2 AND generation = $3`)
	disableWebhookQuery = db.SQL(`UPDATE webhook SET status = 'disabled', reason = $3, status_at = $4, revision = revision + 1
		WHERE id = $1 AND revision = $2 AND status = 'enabled' RETURNING account`)
)

// writeOutcome writes an outcome with its attempt and its effect on the webhook in one commit. It
// retries until the commit succeeds, the delivery was changed elsewhere (errSuperseded), the
// outcome of the commit is unknown, or the service stops.
func (h *Service) writeOutcome(hook db.ID, o *outcome) (err error) {
	if h.onSettled != nil {
		defer func() { h.onSettled(hook, o, err) }()
	}
	for {
		var disabled db.ID // account of the disabled webhook; 0: not disabled
		err = h.o.DB.Write(h.writeCtx, hook, &db.Mutation{
			Guard: func(b *db.Batch) {
				b.Queue(settleDeliveryQuery.With(hook, o.item.id, o.lease, o.item.attempts, o.item.tries,
					o.state, db.Micros(o.nextAt), o.result.code, o.result.errorCode, db.Micros(o.result.endedAt))).OrFail(errSuperseded)
			},
			Apply: func(b *db.Batch) {
				b.Queue(insertAttemptQuery.With(o.attemptRow(hook)...))
				if o.circuitChanged { // outcomes may be written out of order: the latest circuit counts
					c := o.latestCircuit.Load()
					b.Queue(updateCircuitQuery.With(hook, o.lease, o.generation, db.Micros(c.failingSince), c.level, db.Micros(c.pausedUntil), c.resumes))
				}
				if disabled = 0; o.disableReason != "" {
					b.Queue(disableWebhookQuery.With(hook, o.revision, o.disableReason, db.Micros(o.result.endedAt))).Each(func(r db.Row) error { return r.Scan(&disabled) })
				}
			},
		})
		if err == nil && disabled != 0 {
			h.notifyDisabled(disabled, hook, o)
		}
		// After a commit of unknown outcome the row has the current state.
		if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, db.ErrCommitUnknown) || h.writeCtx.Err() != nil {
			return err
		}
		h.o.Log.Error("the outcome of a delivery could not be written", "webhook", hook, "event", o.item.id, "error", err)
		_ = notify.Sleep(h.writeCtx, errorDelay)
	}
}

// notifyDisabled reports that a webhook was disabled. The row has the reason even if the
// notification fails.
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

// attemptRow returns the attempt's row.
func (o *outcome) attemptRow(hook db.ID) []any {
	a := &o.result
	return []any{hook, o.item.id, o.n, db.Micros(a.startedAt), a.endedAt.Sub(a.startedAt).Microseconds(), a.headers, a.code, a.errorCode, a.detail,
		a.body, db.Micros(o.nextAt)}
}
