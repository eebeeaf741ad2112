// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// errSuperseded means that a delivery or a webhook changed since the work on it began.
var errSuperseded = errors.New("it was changed meanwhile")

// finishedAttempt is an attempt with its result.
type finishedAttempt struct {
	item       windowDelivery
	level      int   // level of the circuit when the attempt began
	generation int64 // generation of the dispatcher when the attempt began
	resumes    int64 // resumes of the circuit when the attempt began
	result     httpResult
	prepareErr error // why nothing was sent
}

// startAttempt starts an attempt. The caller has taken its slot in the pool.
func (l *dispatcher) startAttempt() {
	pool, i := l.pool(), l.window[0]
	l.window = l.window[1:]
	l.inFlight[i.id] = i
	l.running++
	l.started++
	l.idleSince = time.Time{}
	a := finishedAttempt{item: i, level: l.level, generation: l.generation, resumes: l.resumes}
	s, c := l.settings, l.client
	go func() {
		a.result, a.prepareErr = l.h.attempt(l.h.attemptCtx, s, c, l.id, i)
		<-pool
		l.finished <- a
	}()
}

// attempt makes an attempt. An error means that nothing was sent and the delivery is unchanged.
func (h *Service) attempt(ctx context.Context, s settings, c *client, hook db.ID, i windowDelivery) (httpResult, error) {
	body, err := h.body(ctx, s.account, hook, i.id, true)
	switch {
	case errors.Is(err, errPruned):
		now := h.o.Now()
		return httpResult{startedAt: now, endedAt: now, headers: "{}", errorCode: ErrorPruned, detail: errPruned.Message}, nil
	case err != nil:
		return httpResult{}, err
	}
	a := c.post(ctx, s.secrets, i.kind, i.id, body)
	if ctx.Err() != nil && !a.accepted() {
		return httpResult{}, ctx.Err() // the service is stopping: the result is unknown
	}
	return a, nil
}

// handleResult evaluates an attempt and starts writing its outcome.
func (l *dispatcher) handleResult(a finishedAttempt) {
	l.running--
	if a.prepareErr != nil {
		delete(l.inFlight, a.item.id)
		l.moreDue = true
		l.handleError(l.h.attemptCtx, "preparing a delivery", a.prepareErr)
		return
	}
	o := l.evaluate(a)
	l.h.writeWG.Go(func() {
		o.err = l.h.writeOutcome(l.id, o)
		l.written <- *o
	})
}

// evaluate derives the outcome of an attempt for its delivery and its webhook.
func (l *dispatcher) evaluate(a finishedAttempt) *outcome {
	o := &outcome{finishedAttempt: a, lease: l.lease, revision: l.revision, n: a.item.attempts + 1, tries: a.item.tries + 1}
	before := l.circuitBreaker
	switch {
	case a.result.accepted():
		o.state = Delivered
		l.recordSuccess()
	case a.result.errorCode == ErrorPruned:
		o.state = Failed
	default:
		o.state = Failed
		if at, ok := nextAttempt(o.tries, a.result.endedAt, a.result.retryAfter); ok {
			o.state, o.nextAt = Pending, at
		}
		l.recordFailure(a.level, a.resumes, a.result.endedAt, a.result.retryAfter)
		o.disableReason = l.disableReason(a.result)
	}
	if a.generation != l.generation { // results from before the reset don't count
		l.circuitBreaker, o.disableReason = before, ""
	}
	o.circuit = l.circuitBreaker
	o.circuitChanged = before.failingSince.IsZero() != o.circuit.failingSince.IsZero() || before.level != o.circuit.level || !before.pausedUntil.Equal(o.circuit.pausedUntil)
	latest := l.circuitBreaker
	l.latestCircuit.Store(&latest)
	o.latestCircuit = &l.latestCircuit
	return o
}

// disableReason returns the reason why a failure disables the webhook, "" for none.
func (l *dispatcher) disableReason(a httpResult) string {
	switch {
	case a.code == 410:
		return ReasonGone
	case a.endedAt.Sub(l.failingSince) >= disableAfter:
		return ReasonFailing
	}
	return ""
}

// handleWritten records that an outcome was written, or never will be.
func (l *dispatcher) handleWritten(o outcome) {
	delete(l.inFlight, o.item.id)
	if l.requeued {
		l.requeued, l.moreDue = false, true
	}
	switch {
	case o.err != nil:
		l.moreDue = true // the row has the current state
		l.stale.Store(true)
	case o.state == Pending && (l.nextDue.IsZero() || o.nextAt.Before(l.nextDue)):
		l.nextDue = o.nextAt
	}
	if o.disableReason != "" {
		l.stale.Store(true)
	}
}
