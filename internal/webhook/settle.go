// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

// outcome is an attempt's end as it is written.
type outcome struct {
	landing
	tenure   db.ID
	revision int64
	n        int // the attempt
	tries    int
	state    string
	next     time.Time // while it is pending
	circuit  circuit
	turned   bool                     // the circuit is not as its row says
	latest   *atomic.Pointer[circuit] // of the lane
	disable  string                   // the reason to disable the webhook; "" for none
	err      error                    // of writing it
}

var (
	settleDelivery = db.SQL(`UPDATE webhook_delivery SET state = $6, attempts = attempts + 1, tries = tries + 1, due_at = $7, code = $8,
			trouble = $9, updated_at = $10
		WHERE webhook = $1 AND id = $2 AND state = 'pending' AND attempts = $4 AND tries = $5
			AND EXISTS (SELECT 1 FROM webhook_lane WHERE webhook = $1 AND tenure = $3)`)
	insertAttempt = db.SQL(`INSERT INTO webhook_attempt (webhook, id, n, started_at, micros, headers, code, trouble, words, response, next_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`)
	turnLane = db.SQL(`UPDATE webhook_lane SET failing_since = $4, level = $5, rest_until = $6
		WHERE webhook = $1 AND tenure = $2 AND life = $3`)
	disableHook = db.SQL(`UPDATE webhook SET status = 'disabled', reason = $3, status_at = $4, revision = revision + 1
		WHERE id = $1 AND revision = $2 AND status = 'enabled' RETURNING account`)
)

// settle writes an outcome, its attempt, and what they mean for the webhook in
// one commit. It tries until that is done, or errSuperseded says that the
// delivery is another's by now, or the service ends.
func (h *Hooks) settle(hook db.ID, o *outcome) (err error) {
	if h.told != nil {
		defer func() { h.told(hook, o, err) }()
	}
	for {
		var disabled db.ID // the account whose webhook it was; 0: it is not
		err = h.o.DB.Write(h.last, hook, &db.Job{
			Guard: func(b *db.Batch) {
				b.Queue(settleDelivery.With(hook, o.item.id, o.tenure, o.item.attempts, o.item.tries,
					o.state, db.Micros(o.next), o.answer.code, o.answer.trouble, db.Micros(o.answer.ended))).Else(errSuperseded)
			},
			Apply: func(b *db.Batch) {
				b.Queue(insertAttempt.With(o.attempt(hook)...))
				if o.turned { // of outcomes that are written out of their order the last one holds
					c := o.latest.Load()
					b.Queue(turnLane.With(hook, o.tenure, o.life, db.Micros(c.since), c.level, db.Micros(c.rest)))
				}
				if disabled = 0; o.disable != "" {
					b.Queue(disableHook.With(hook, o.revision, o.disable, db.Micros(o.answer.ended))).Each(func(r db.Row) error { return r.Scan(&disabled) })
				}
			},
		})
		if err == nil && disabled != 0 {
			h.tell(disabled, hook, o)
		}
		// After an unknown outcome the row tells how it is.
		if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, db.ErrUnknown) || h.last.Err() != nil {
			return err
		}
		h.o.Log.Error("the outcome of a delivery could not be written", "webhook", hook, "event", o.item.id, "error", err)
		_ = signal.Sleep(h.last, troubleWait)
	}
}

// tell gives notice of a webhook that was disabled. That stands in its row,
// whether or not anybody could be told.
func (h *Hooks) tell(account, hook db.ID, o *outcome) {
	h.o.Log.Warn("a webhook was disabled", "webhook", hook, "reason", o.disable, "failing_since", o.circuit.since)
	w, err := h.Get(h.last, account, hook)
	if err == nil && h.o.Disabled != nil {
		err = h.o.Disabled(h.last, w)
	}
	if err != nil {
		h.o.Log.Error("giving notice of a disabled webhook failed", "webhook", hook, "error", err)
	}
}

// attempt is the row of the attempt.
func (o *outcome) attempt(hook db.ID) []any {
	a := &o.answer
	return []any{hook, o.item.id, o.n, db.Micros(a.began), a.ended.Sub(a.began).Microseconds(), a.headers, a.code, a.trouble, a.words,
		a.response, db.Micros(o.next)}
}
