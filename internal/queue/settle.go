// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/suppression"
)

// outcomeRecord is an outcome with the data that is written with it.
type outcomeRecord struct {
	Outcome
	attempted bool // whether there is an attempt to record
	expired   bool
	// nullSender reports whether the message has the null sender, so that no one gets a failure
	// report.
	nullSender bool
	info       *MessageInfo
	due        time.Time
}

// Maximum stored lengths of a reply and a transcript, in octets.
const (
	maxReply      = 2 << 10
	maxTranscript = 64 << 10
)

// errSuperseded means that the delivery was ended or taken over before the outcome was written.
var errSuperseded = errors.New("the delivery is no longer leased")

var (
	settleQuery = db.SQL(`UPDATE delivery SET state = $4, due_at = $5, lease = CASE WHEN hold > 0 AND $4 = 'deferred' THEN 0 ELSE NULL END,
			hold = CASE WHEN $4 = 'deferred' THEN hold ELSE 0 END, attempts = $6, sequence = $7,
			code = $8, enhanced = $9, reply = $10, remote_host = $11, updated_at = $12
		WHERE message = $1 AND n = $2 AND lease = $3 AND sequence = $13 AND state IN ('scheduled', 'queued', 'deferred')`)
	insertAttemptQuery = db.SQL(`INSERT INTO attempt (message, n, attempt, started_at, duration_us, outcome, host, ip, tls, stage,
			code, enhanced, reply, transcript)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`)
)

// handleOutcome processes a delivery agent's outcome for one delivery.
func (q *Queue) handleOutcome(c *Transaction, d *Delivery, o Outcome) {
	if o.State == Queued {
		if d.requeues++; d.requeues <= maxRequeues {
			q.requeue(d)
			return
		}
	}
	if o.State != Delivered && o.State != Bounced && o.State != Failed {
		o.State = Deferred
	}
	now := q.o.Now()
	if o.StartedAt.IsZero() {
		o.StartedAt = c.takenAt
	}
	if o.Duration == 0 {
		o.Duration = max(0, now.Sub(o.StartedAt))
	}
	v := outcomeRecord{Outcome: o, attempted: true, info: &c.Mail.MessageInfo, nullSender: c.From == ""}
	if o.State == Deferred && !now.Before(d.ExpiresAt) {
		d.lastOutcome = o
		v.expired = true
		v.State, v.Enhanced, v.Reply = Bounced, d.expiredOutcome().Enhanced, d.expiredOutcome().Reply
	}
	q.recordOutcome(d, v)
}

// requeue puts a delivery at the head of the ready list.
func (q *Queue) requeue(d *Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch.Requeue(d)
}

// recordOutcome starts writing an outcome, without waiting for its commit.
func (q *Queue) recordOutcome(d *Delivery, v outcomeRecord) {
	if v.State == Deferred {
		wait := max(retryDelay(d.Attempts+1), v.RetryAfter)
		v.due = q.o.Now().Add(wait)
		if v.due.After(d.ExpiresAt) {
			v.due = d.ExpiresAt
		}
	}
	v.Reply, v.Enhanced = db.CleanText(v.Reply, maxReply), db.CleanText(v.Enhanced, 16)
	v.Host, v.Remote, v.TLS, v.IP = db.CleanText(v.Host, 255), db.CleanText(v.Remote, 255), db.CleanText(v.TLS, 255), db.CleanText(v.IP, 64)
	v.Transcript, v.Stage = db.CleanText(v.Transcript, maxTranscript), db.CleanText(v.Stage, 32)
	if v.Remote == "" {
		v.Remote = v.Host
	}
	q.startWrite(func() { q.commitOutcome(d, v) })
}

// startWrite runs a write in the background once there is a free slot. The main loop and holders of
// q.mu must not wait for a slot: they use startTask. Once cancelWrites was called, writes don't
// wait for a slot.
func (q *Queue) startWrite(f func()) {
	q.work.Add(1)
	free := func() { <-q.writeSlots }
	select {
	case q.writeSlots <- struct{}{}:
	case <-q.writeCtx.Done():
		free = func() {}
	}
	go func() {
		defer q.work.Done()
		defer free()
		f()
	}()
}

// startTask runs f in the background, so that the caller does not wait for a write slot.
func (q *Queue) startTask(f func()) {
	q.work.Add(1)
	go func() {
		defer q.work.Done()
		f()
	}()
}

// commitOutcome commits an outcome with its attempt and its events.
func (q *Queue) commitOutcome(d *Delivery, v outcomeRecord) {
	about, err := q.messageInfo(d, v)
	for again := err == nil; again; {
		var job *db.Mutation
		if job, err = q.outcomeMutation(d, v, about); err == nil {
			err = q.write(d.Message, job)
		}
		again = errors.Is(err, errSuperseded) && q.reloadSequence(d)
	}
	switch {
	case errors.Is(err, errSuperseded):
		q.o.Log.Warn("an outcome came too late: the delivery was ended or taken over meanwhile",
			"message", d.Message, "n", d.N, "outcome", v.State, "reply", v.Reply)
	case err != nil:
		q.o.Log.Error("an outcome could not be written", "message", d.Message, "n", d.N,
			"outcome", v.State, "reply", v.Reply, "error", err)
	}
	if err == nil && v.nullSender && (v.State == Bounced || v.State == Failed) {
		q.o.Log.Warn("a report or reply could not be delivered", "message", d.Message, "n", d.N, "destination", d.Destination,
			"outcome", v.State, "code", v.Code, "enhanced", v.Enhanced)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		d.state = v.State
		if v.State == Deferred {
			q.wakeAt(v.due)
		}
	}
	q.dispatch.Forget(d)
}

// If attempts differ, the outcome itself was committed without this node's knowledge, and the
// delivery has been leased again.
var sequenceQuery = db.SQL(`SELECT sequence FROM delivery WHERE message = $1 AND n = $2 AND lease = $3 AND lease IS NOT NULL
	AND state IN ('scheduled', 'queued', 'deferred') AND attempts = $4`)

// reloadSequence reports whether an outcome was rejected only because another event of the
// delivery, an unsubscribe of its recipient, changed the sequence.
func (q *Queue) reloadSequence(d *Delivery) bool {
	before := d.sequence
	err := q.retryWrite(func(ctx context.Context) error {
		return db.IfNoRow(q.o.DB.One(ctx, sequenceQuery.With(d.Message, d.N, d.Lease, d.Attempts), &d.sequence), errSuperseded)
	})
	return err == nil && d.sequence != before
}

// messageInfo returns the event data of the message.
func (q *Queue) messageInfo(d *Delivery, v outcomeRecord) (MessageInfo, error) {
	if v.info != nil {
		return *v.info, nil
	}
	if about, ok := q.messages.info(d.Message); ok {
		return about, nil
	}
	var about MessageInfo
	err := q.retryWrite(func(ctx context.Context) (err error) {
		about, err = q.o.Describe(ctx, d.Message)
		if fault.Is(err, fault.NotFound) { // its deliveries must still become final
			about, err = MessageInfo{Account: d.Account}, nil
		}
		return err
	})
	return about, err
}

func (q *Queue) outcomeMutation(d *Delivery, v outcomeRecord, about MessageInfo) (*db.Mutation, error) {
	now := q.o.Now()
	attempts, due := d.Attempts, d.due
	if v.attempted {
		attempts++
	}
	if v.State == Deferred {
		due = v.due
	}
	data := StatusChange{
		MessageInfo: about, ID: d.Message, Recipient: d.Recipient, Status: v.State, Sequence: d.sequence,
		Attempts: attempts, Code: v.Code, Enhanced: v.Enhanced, Reply: v.Reply, Remote: v.Remote, Via: v.Via,
	}
	var events []event.RecordParams
	var also []db.Statement
	switch v.State {
	case Deferred:
		if d.state != Deferred {
			data.NextAttempt = &due
			events = data.Events(nil)
		}
	case Bounced:
		b := classifyFailure(v.Stage, v.expired, &data)
		events = data.Events(newBounceClassification(b))
		if b.Suppress {
			if s, ok := q.suppressStatement(&data, d.N, suppression.ReasonBounce, data.diagnostic()); ok {
				also = append(also, s)
			}
		}
	default:
		events = data.Events(nil)
	}
	recorded, err := q.eventStatements(events)
	if err != nil {
		return nil, err
	}
	also = append(also, recorded...)
	if v.attempted {
		also = append(also, insertAttemptQuery.With(d.Message, d.N, attempts, db.Micros(v.StartedAt), v.Duration.Microseconds(),
			string(v.State), v.Host, v.IP, v.TLS, v.Stage, v.Code, v.Enhanced, v.Reply, v.Transcript))
	}
	notice := q.newNotice(d, v)
	if notice != nil {
		also = append(also, notice.InsertStatement())
	}
	update := settleQuery.With(d.Message, d.N, d.Lease, string(v.State), db.Micros(due), attempts, d.sequence+len(events),
		v.Code, v.Enhanced, v.Reply, v.Remote, db.Micros(now), d.sequence)
	job := q.conditionalMutation(update, also, len(events) > 0)
	if notice != nil {
		job.AfterCommit = func() {
			q.o.Events.WakeSequencer()
			q.o.Hub.Wake(notify.Key{Kind: notify.SenderNotice})
		}
	}
	return job, nil
}

// conditionalMutation returns a mutation with a conditional update and the statements that depend
// on it.
func (q *Queue) conditionalMutation(update db.Statement, also []db.Statement, events bool) *db.Mutation {
	job := &db.Mutation{
		Guard: func(b *db.Batch) { b.Queue(update).OrFail(errSuperseded) },
		Apply: func(b *db.Batch) {
			for _, s := range also {
				b.Queue(s)
			}
		},
	}
	if events {
		job.AfterCommit = q.o.Events.WakeSequencer
	}
	return job
}
