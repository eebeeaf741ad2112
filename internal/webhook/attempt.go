// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// errSuperseded says that a delivery, or a webhook, is not as it was when the
// work on it began.
var errSuperseded = errors.New("it was changed meanwhile")

// landing is what became of an attempt.
type landing struct {
	item    item
	level   int   // of the circuit when it began
	life    int64 // of the lane
	answer  answer
	untried error // why nothing was sent
}

// launch begins an attempt; its place in the pool is taken.
func (l *lane) launch() {
	pool, i := l.pool(), l.window[0]
	l.window = l.window[1:]
	l.hand[i.id] = i
	l.flying++
	l.begun++
	l.idle = time.Time{}
	a := landing{item: i, level: l.level, life: l.life}
	s, c := l.settings, l.client
	go func() {
		a.answer, a.untried = l.h.try(l.h.carry, s, c, l.id, i)
		<-pool
		l.landed <- a
	}()
}

// try makes an attempt. An error says that nothing was sent, and that the
// delivery is as it was.
func (h *Hooks) try(ctx context.Context, s settings, c *client, hook db.ID, i item) (answer, error) {
	body, err := h.body(ctx, s.account, hook, i.id, true)
	switch {
	case errors.Is(err, errPruned):
		now := h.o.Now()
		return answer{began: now, ended: now, headers: "{}", trouble: TroublePruned, words: errPruned.Message}, nil
	case err != nil:
		return answer{}, err
	}
	a := c.post(ctx, s.secrets, i.kind, i.id, body)
	if ctx.Err() != nil && !a.taken() {
		return answer{}, ctx.Err() // the service ends: nobody knows how it would have gone
	}
	return a, nil
}

// land judges an attempt and has its outcome written.
func (l *lane) land(a landing) {
	l.flying--
	if a.untried != nil {
		delete(l.hand, a.item.id)
		l.more = true
		l.fail(l.h.carry, "preparing a delivery", a.untried)
		return
	}
	o := l.judged(a)
	l.h.writing.Go(func() {
		o.err = l.h.settle(l.id, o)
		l.written <- *o
	})
}

// judged says what an attempt means for its delivery and for the webhook.
func (l *lane) judged(a landing) *outcome {
	o := &outcome{landing: a, tenure: l.tenure, revision: l.revision, n: a.item.attempts + 1, tries: a.item.tries + 1}
	before := l.circuit
	switch {
	case a.answer.taken():
		o.state = Delivered
		l.succeeded()
	case a.answer.trouble == TroublePruned:
		o.state = Failed
	default:
		o.state = Failed
		if at, ok := nextTry(o.tries, a.answer.ended, a.answer.wish); ok {
			o.state, o.next = Pending, at
		}
		l.failed(a.level, a.answer.ended, a.answer.wish)
		o.disable = l.verdict(a.answer)
	}
	if a.life != l.life { // what failed before says nothing about now
		l.circuit, o.disable = before, ""
	}
	o.circuit = l.circuit
	o.turned = before.since.IsZero() != o.circuit.since.IsZero() || before.level != o.circuit.level || !before.rest.Equal(o.circuit.rest)
	latest := l.circuit
	l.latest.Store(&latest)
	o.latest = &l.latest
	return o
}

// verdict says for which reason a failure disables the webhook, "" for none.
func (l *lane) verdict(a answer) string {
	switch {
	case a.code == 410:
		return Gone
	case a.ended.Sub(l.since) >= failingFor:
		return Failing
	}
	return ""
}

// settled notes that an outcome is written, or will never be.
func (l *lane) settled(o outcome) {
	delete(l.hand, o.item.id)
	if l.anew {
		l.anew, l.more = false, true
	}
	switch {
	case o.err != nil:
		l.more = true // the row says how it is
		l.changed.Store(true)
	case o.state == Pending && (l.next.IsZero() || o.next.Before(l.next)):
		l.next = o.next
	}
	if o.disable != "" {
		l.changed.Store(true)
	}
}
