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

// Report is a later message's report about a delivery: a DSN or a complaint.
type Report struct {
	Code     int    // from the DSN's Diagnostic-Code; 0 if unknown
	Enhanced string // from the DSN's Status
	Text     string // the diagnostic, or the kind of complaint
	Remote   string // Remote-MTA or the reporter
	// Bounce is the classification, if the report says more than the fields above; if it is zero,
	// those fields determine it.
	Bounce bounce.Classification
}

// diagnostic returns the text without the codes that most diagnostics begin with: they have their
// own fields.
func (r Report) diagnostic() string {
	text := strings.TrimSpace(r.Text)
	for _, code := range []string{strconv.Itoa(r.Code), r.Enhanced} {
		rest, ok := strings.CutPrefix(text, code)
		if short := strings.TrimLeft(rest, " -"); ok && code != "" && code != "0" && len(short) > 0 && len(short) < len(rest) {
			text = short
		}
	}
	return db.CleanText(text, maxReply)
}

// changedColumns are the columns of a changed delivery that its events need.
const changedColumns = `account, recipient, destination, attempts, sequence, code, enhanced, reply, remote_host`

var (
	// Only an attempt discloses the return path. A queued delivery without a lease was therefore in
	// an attempt whose lease has expired.
	bounceQuery = db.SQL(`UPDATE delivery SET state = 'bounced', lease = NULL, hold = 0, sequence = sequence + 2,
			code = $3, enhanced = $4, reply = $5, remote_host = $6, updated_at = $7
		WHERE message = $1 AND n = $2 AND state IN ('queued', 'deferred', 'delivered')
		RETURNING ` + changedColumns)
	complaintQuery = db.SQL(`UPDATE delivery SET state = 'complained', sequence = sequence + 2, updated_at = $3
		WHERE message = $1 AND n = $2 AND state = 'delivered'
		RETURNING ` + changedColumns)
)

// RecordBounce handles a DSN with Action: failed for a delivery that is queued, sending, deferred
// or delivered. It reports whether the delivery changed; a missing delivery did not.
func (q *Queue) RecordBounce(ctx context.Context, message db.ID, n int, r Report) (bool, error) {
	update := bounceQuery.With(message, n, r.Code, db.CleanText(r.Enhanced, 16), r.diagnostic(), db.CleanText(r.Remote, 255),
		db.Micros(q.o.Now()))
	return q.applyReport(ctx, message, n, update, func(c *updatedDelivery) ([]event.RecordParams, []db.Statement) {
		c.Status = Bounced
		b := classifyReport(&c.StatusChange, r.Bounce)
		also := []db.Statement{q.transitionStatement(message, n, StageReport, c.Status, r)}
		if b.Suppress {
			if s, ok := q.suppressStatement(&c.StatusChange, n, suppression.ReasonBounce, c.diagnostic()); ok {
				also = append(also, s)
			}
		}
		return c.Events(newBounceClassification(b)), also
	})
}

// RecordComplaint handles a complaint about a delivered delivery. It reports whether the delivery
// changed. It never suppresses recipients of mail that the service wrote: that mail may contain the
// only link by which a user can sign in again.
func (q *Queue) RecordComplaint(ctx context.Context, message db.ID, n int, r Report) (bool, error) {
	update := complaintQuery.With(message, n, db.Micros(q.o.Now()))
	return q.applyReport(ctx, message, n, update, func(c *updatedDelivery) ([]event.RecordParams, []db.Statement) {
		c.Status = Complained
		also := []db.Statement{q.transitionStatement(message, n, StageComplaint, c.Status, r)}
		if s, ok := q.suppressStatement(&c.StatusChange, n, suppression.ReasonComplaint, r.Text); ok {
			also = append(also, s)
		}
		return c.complaintEvents(db.CleanText(r.Text, maxReply), db.CleanText(r.Remote, 255)), also
	})
}

// transitionStatement returns the statement that adds a state change to the timeline.
func (q *Queue) transitionStatement(message db.ID, n int, stage string, to State, r Report) db.Statement {
	return insertTransitionQuery.With(message, n, stage, db.Micros(q.o.Now()), string(to), r.Code, db.CleanText(r.Enhanced, 16), r.diagnostic(), db.CleanText(r.Remote, 255))
}

// applyReport runs a conditional update with its two events and further statements.
func (q *Queue) applyReport(ctx context.Context, message db.ID, n int, update db.Statement,
	follow func(*updatedDelivery) ([]event.RecordParams, []db.Statement)) (bool, error) {
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
		return recordEvents(ctx, tx, q.o.Events, events)
	})
	if err != nil {
		return false, err
	}
	q.recheckDelivery(message, n)
	return done, nil
}

// recheckDelivery makes a leased delivery check its row before the next attempt.
func (q *Queue) recheckDelivery(message db.ID, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recheckDeliveries(message, []int{n})
}
