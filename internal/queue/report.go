// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/bounce"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Report is what a later message says about a delivery: a DSN or a complaint.
type Report struct {
	Code     int    // from the DSN's Diagnostic-Code; 0 if unknown
	Enhanced string // from its MessageState
	Text     string // the diagnostic, or the kind of complaint
	Remote   string // Remote-MTA or the reporter
	// Bounce is what the report means, as far as more than the above says so;
	// the zero one is made of the above.
	Bounce bounce.Classification
}

// diagnostic is the text without the codes that most diagnostics begin with: they
// are told beside it.
func (r Report) diagnostic() string {
	text := strings.TrimSpace(r.Text)
	for _, code := range []string{strconv.Itoa(r.Code), r.Enhanced} {
		rest, ok := strings.CutPrefix(text, code)
		if short := strings.TrimLeft(rest, " -"); ok && code != "" && code != "0" && len(short) > 0 && len(short) < len(rest) {
			text = short
		}
	}
	return sanitize(text, maxReply)
}

var (
	// Nobody knows the return path before it was sent: what is queued, and in nobody's
	// hand, was in one that has ended.
	bounceQuery = db.SQL(`UPDATE delivery SET state = 'bounced', tenure = NULL, hold = 0, sequence = sequence + 2,
			code = $3, enhanced = $4, reply = $5, remote = $6, updated_at = $7
		WHERE message = $1 AND n = $2 AND state IN ('queued', 'deferred', 'delivered')
		RETURNING account, recipient, destination, attempts, sequence, code, enhanced, reply, remote`)
	complaintQuery = db.SQL(`UPDATE delivery SET state = 'complained', sequence = sequence + 2, updated_at = $3
		WHERE message = $1 AND n = $2 AND state = 'delivered'
		RETURNING account, recipient, destination, attempts, sequence, code, enhanced, reply, remote`)
)

// RecordBounce takes a DSN with Action: failed for a delivery that is queued, sending,
// deferred or delivered. It reports whether that changed anything; a delivery
// that does not exist is none.
func (q *Queue) RecordBounce(ctx context.Context, message db.ID, n int, r Report) (bool, error) {
	update := bounceQuery.With(message, n, r.Code, sanitize(r.Enhanced, 16), r.diagnostic(), sanitize(r.Remote, 255),
		db.Micros(q.o.Now()))
	return q.applyReport(ctx, message, n, update, func(c *updatedDelivery) ([]event.Input, []db.Statement) {
		c.Status = Bounced
		b := classifyReport(&c.statusData, r.Bounce)
		also := []db.Statement{q.transitionStatement(message, n, StageReport, c.Status, r)}
		if b.Suppress {
			if s, ok := q.suppressStatement(&c.statusData, n, suppression.ReasonBounce, c.diagnostic()); ok {
				also = append(also, s)
			}
		}
		return c.events(newBounceKind(b)), also
	})
}

// RecordComplaint takes a complaint about a delivered delivery. It reports whether
// that changed anything. What the service writes must go on to arrive: it may be
// the link without which somebody never gets in again.
func (q *Queue) RecordComplaint(ctx context.Context, message db.ID, n int, r Report) (bool, error) {
	update := complaintQuery.With(message, n, db.Micros(q.o.Now()))
	return q.applyReport(ctx, message, n, update, func(c *updatedDelivery) ([]event.Input, []db.Statement) {
		c.Status = Complained
		also := []db.Statement{q.transitionStatement(message, n, StageComplaint, c.Status, r)}
		if s, ok := q.suppressStatement(&c.statusData, n, suppression.ReasonComplaint, r.Text); ok {
			also = append(also, s)
		}
		return c.complaintEvents(sanitize(r.Text, maxReply), sanitize(r.Remote, 255)), also
	})
}

// transitionStatement enters into the timeline what changed the state.
func (q *Queue) transitionStatement(message db.ID, n int, stage string, to State, r Report) db.Statement {
	return insertTransitionQuery.With(message, n, stage, db.Micros(q.o.Now()), string(to), r.Code, sanitize(r.Enhanced, 16), r.diagnostic(), sanitize(r.Remote, 255))
}

// applyReport runs a conditional update that fires two events, and what else goes with
// it.
func (q *Queue) applyReport(ctx context.Context, message db.ID, n int, update db.Statement,
	follow func(*updatedDelivery) ([]event.Input, []db.Statement)) (bool, error) {
	about, err := q.o.Describe(ctx, message)
	if err != nil {
		return false, err
	}
	done := false
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		c, err := updateDelivery(ctx, tx, update)
		if done = c != nil; err != nil || !done {
			return err
		}
		c.MessageInfo, c.ID = about, message
		c.Sequence -= 2
		events, also := follow(c)
		for _, s := range also {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		return q.recordEvents(ctx, tx, events)
	})
	if err != nil {
		return false, err
	}
	q.recheckDelivery(message, n)
	return done, nil
}

// recheckDelivery makes what is in hand of a delivery look at its row.
func (q *Queue) recheckDelivery(message db.ID, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recheckDeliveries(message, []int{n})
}
