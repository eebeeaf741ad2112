// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/suppression"
)

// verdict is what is written of a delivery.
type verdict struct {
	Outcome
	tried   bool // there is an attempt to record
	expired bool
	// unanswered: nobody is told of a failure, as the message has the null sender.
	unanswered bool
	about      *About
	due        time.Time
}

// Sizes of what is kept of a reply and a conversation, in octets.
const (
	maxReply      = 2 << 10
	maxTranscript = 64 << 10
)

// errLost declines an outcome: the delivery was ended or taken over meanwhile.
var errLost = errors.New("the delivery is no longer in hand")

var (
	settle = db.SQL(`UPDATE delivery SET state = $4, due_at = $5, tenure = CASE WHEN hold > 0 AND $4 = 'deferred' THEN 0 ELSE NULL END,
			hold = CASE WHEN $4 = 'deferred' THEN hold ELSE 0 END, attempts = $6, sequence = $7,
			code = $8, enhanced = $9, reply = $10, remote = $11, updated_at = $12
		WHERE message = $1 AND n = $2 AND tenure = $3 AND sequence = $13 AND state IN ('scheduled', 'queued', 'deferred')`)
	insertAttempt = db.SQL(`INSERT INTO attempt (message, n, attempt, started_at, micros, outcome, host, ip, tls, stage,
			code, enhanced, reply, transcript)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`)
)

// report takes a courier's outcome for one delivery.
func (q *Queue) report(c *Consignment, d *Delivery, o Outcome) {
	if o.State == Queued {
		if d.again++; d.again <= maxAgain {
			q.putBack(d)
			return
		}
	}
	if o.State != Delivered && o.State != Bounced && o.State != Failed {
		o.State = Deferred
	}
	now := q.o.Now()
	if o.StartedAt.IsZero() {
		o.StartedAt = c.taken
	}
	if o.Took == 0 {
		o.Took = max(0, now.Sub(o.StartedAt))
	}
	v := verdict{Outcome: o, tried: true, about: &c.Mail.About, unanswered: c.From == ""}
	if o.State == Deferred && !now.Before(d.ExpiresAt) {
		d.last = o
		v.expired = true
		v.State, v.Enhanced, v.Reply = Bounced, d.expired().Enhanced, d.expired().Reply
	}
	q.conclude(d, v)
}

// putBack makes a delivery the next to be taken.
func (q *Queue) putBack(d *Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.carried = false
	q.carried--
	d.dest.ready = slices.Insert(d.dest.ready, 0, d)
	q.start(d.dest)
}

// conclude writes a verdict, without waiting for its commit.
func (q *Queue) conclude(d *Delivery, v verdict) {
	if v.State == Deferred {
		wait := max(retryAfter(d.Attempts+1), v.Retry)
		v.due = q.o.Now().Add(wait)
		if v.due.After(d.ExpiresAt) {
			v.due = d.ExpiresAt
		}
	}
	v.Reply, v.Enhanced = clean(v.Reply, maxReply), clean(v.Enhanced, 16)
	v.Host, v.Remote, v.TLS, v.IP = clean(v.Host, 255), clean(v.Remote, 255), clean(v.TLS, 255), clean(v.IP, 64)
	v.Transcript, v.Stage = clean(v.Transcript, maxTranscript), clean(v.Stage, 32)
	if v.Remote == "" {
		v.Remote = v.Host
	}
	q.background(func() { q.record(d, v) })
}

// background runs a write, once there is a slot for it. The main loop, and who
// holds q.mu, must not wait for one: see beside. When outcomes are given up nobody
// waits.
func (q *Queue) background(f func()) {
	q.work.Add(1)
	free := func() { <-q.slots }
	select {
	case q.slots <- struct{}{}:
	case <-q.last.Done():
		free = func() {}
	}
	go func() {
		defer q.work.Done()
		defer free()
		f()
	}()
}

// beside does what may wait for slots, and lets the caller go on.
func (q *Queue) beside(f func()) {
	q.work.Add(1)
	go func() {
		defer q.work.Done()
		f()
	}()
}

// clean makes text from outside fit for a TEXT column of both engines.
func clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// record commits a verdict with its attempt and its events.
func (q *Queue) record(d *Delivery, v verdict) {
	about, err := q.aboutOf(d, v)
	for again := err == nil; again; {
		var job *db.Job
		if job, err = q.verdictJob(d, v, about); err == nil {
			err = q.write(d.Message, job)
		}
		again = errors.Is(err, errLost) && q.resequence(d)
	}
	switch {
	case errors.Is(err, errLost):
		q.o.Log.Warn("an outcome came too late: the delivery was ended or taken over meanwhile",
			"message", d.Message, "n", d.N, "outcome", v.State, "reply", v.Reply)
	case err != nil:
		q.o.Log.Error("an outcome could not be written", "message", d.Message, "n", d.N,
			"outcome", v.State, "reply", v.Reply, "error", err)
	}
	if err == nil && v.unanswered && (v.State == Bounced || v.State == Failed) {
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
	q.forget(d)
}

// With other attempts than before it is the outcome itself that was written, in a
// commit that nobody knew of, and the delivery is in hand again.
var sequenceOf = db.SQL(`SELECT sequence FROM delivery WHERE message = $1 AND n = $2 AND tenure = $3 AND tenure IS NOT NULL
	AND state IN ('scheduled', 'queued', 'deferred') AND attempts = $4`)

// resequence reports whether an outcome was declined only because another
// event of the delivery, its recipient's unsubscribing, came in between.
func (q *Queue) resequence(d *Delivery) bool {
	before := d.sequence
	err := q.persist(func(ctx context.Context) error {
		err := q.o.DB.One(ctx, sequenceOf.With(d.Message, d.N, d.tenure, d.Attempts), &d.sequence)
		if errors.Is(err, db.ErrNoRow) {
			return errLost
		}
		return err
	})
	return err == nil && d.sequence != before
}

// aboutOf finds what the events say about the message.
func (q *Queue) aboutOf(d *Delivery, v verdict) (About, error) {
	if v.about != nil {
		return *v.about, nil
	}
	if about, ok := q.mails.about(d.Message); ok {
		return about, nil
	}
	var about About
	err := q.persist(func(ctx context.Context) (err error) {
		about, err = q.o.Describe(ctx, d.Message)
		if fault.Is(err, fault.NotFound) { // its deliveries must still reach an end
			about, err = About{Account: d.Account}, nil
		}
		return err
	})
	return about, err
}

func (q *Queue) verdictJob(d *Delivery, v verdict, about About) (*db.Job, error) {
	now := q.o.Now()
	attempts, due := d.Attempts, d.due
	if v.tried {
		attempts++
	}
	if v.State == Deferred {
		due = v.due
	}
	data := statusData{
		About: about, ID: d.Message, Recipient: d.Recipient, Status: v.State, Sequence: d.sequence,
		Attempts: attempts, Code: v.Code, Enhanced: v.Enhanced, Reply: v.Reply, Remote: v.Remote, Via: v.Via,
	}
	var events []event.New
	var also []db.Statement
	switch v.State {
	case Deferred:
		if d.state != Deferred {
			data.NextAttempt = &due
			events = data.events(nil)
		}
	case Bounced:
		b := bounceOf(v.Stage, v.expired, &data)
		events = data.events(kindOf(b))
		if b.Suppress {
			if s, ok := q.suppress(&data, d.N, suppression.Bounce, data.diagnostic()); ok {
				also = append(also, s)
			}
		}
	default:
		events = data.events(nil)
	}
	recorded, err := q.prepare(events)
	if err != nil {
		return nil, err
	}
	also = append(also, recorded...)
	if v.tried {
		also = append(also, insertAttempt.With(d.Message, d.N, attempts, db.Micros(v.StartedAt), v.Took.Microseconds(),
			string(v.State), v.Host, v.IP, v.TLS, v.Stage, v.Code, v.Enhanced, v.Reply, v.Transcript))
	}
	notice := q.noticeOf(d, v)
	if notice != nil {
		also = append(also, notice.insert())
	}
	update := settle.With(d.Message, d.N, d.tenure, string(v.State), db.Micros(due), attempts, d.sequence+len(events),
		v.Code, v.Enhanced, v.Reply, v.Remote, db.Micros(now), d.sequence)
	job := q.job(update, also, len(events) > 0)
	if notice != nil {
		job.AfterCommit = func() {
			q.o.Events.Wake()
			q.o.Hub.Wake(signal.Key{Kind: signal.Notice})
		}
	}
	return job, nil
}

// job makes an update that decides, and what follows from it.
func (q *Queue) job(update db.Statement, also []db.Statement, events bool) *db.Job {
	job := &db.Job{
		Guard: func(b *db.Batch) { b.Queue(update).Else(errLost) },
		Apply: func(b *db.Batch) {
			for _, s := range also {
				b.Queue(s)
			}
		},
	}
	if events {
		job.AfterCommit = q.o.Events.Wake
	}
	return job
}
