// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// The waits between tries of a write that fails double from one to the other.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 10 * time.Second
)

// write commits a job, however long the database is in trouble.
func (q *Queue) write(key db.ID, job *db.Job) error {
	return q.persist(func(ctx context.Context) error { return q.o.DB.Write(ctx, key, job) })
}

// persist repeats try until it succeeds or is declined, or the queue has
// ended. While something is being repeated no attempt begins: mail whose
// outcome can't be written would be sent again and again.
func (q *Queue) persist(try func(ctx context.Context) error) error {
	err := try(q.last)
	if err == nil || errors.Is(err, errLost) {
		return err
	}
	q.mu.Lock()
	q.unwritten++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.unwritten--; q.unwritten == 0 {
			q.startAll()
		}
	}()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		q.o.Log.Error("the database does not take what happened to a delivery; no attempt begins until it does", "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-q.last.Done():
			timer.Stop()
			return err
		}
		if err = try(q.last); err == nil || errors.Is(err, errLost) || errors.Is(err, db.ErrClosed) {
			return err
		}
	}
}

var (
	letGo = db.SQL(`UPDATE delivery SET tenure = CASE WHEN hold > 0 THEN 0 ELSE NULL END, due_at = $4
		WHERE message = $1 AND n = $2 AND tenure = $3 AND state IN ('scheduled', 'queued', 'deferred')`)
	letGoWhy = db.SQL(`UPDATE delivery SET tenure = CASE WHEN hold > 0 THEN 0 ELSE NULL END, due_at = $4, code = $5, enhanced = $6, reply = $7, remote = $8
		WHERE message = $1 AND n = $2 AND tenure = $3 AND state IN ('scheduled', 'queued', 'deferred')`)
)

// release gives deliveries that were not tried back to their rows, due at a
// time, or as before if that is zero; why, if not nil, becomes their last
// answer, without the addresses of the message that got it.
func (q *Queue) release(ds []*Delivery, due time.Time, why *Outcome) {
	for len(ds) > 0 {
		n := min(len(ds), 100)
		chunk := ds[:n]
		ds = ds[n:]
		q.background(func() { q.releaseSome(chunk, due, why) })
	}
}

func (q *Queue) releaseSome(ds []*Delivery, due time.Time, why *Outcome) {
	err := q.write(ds[0].Message, &db.Job{Guard: func(b *db.Batch) {
		for _, d := range ds {
			at := due
			if at.IsZero() {
				at = d.due
			}
			if at.After(d.ExpiresAt) {
				at = d.ExpiresAt
			}
			if why == nil {
				b.Queue(letGo.With(d.Message, d.N, d.tenure, db.Micros(at)))
				continue
			}
			remote := why.Remote
			if remote == "" {
				remote = why.Host
			}
			b.Queue(letGoWhy.With(d.Message, d.N, d.tenure, db.Micros(at),
				why.Code, clean(why.Enhanced, 16), clean(smtpclient.Anonymous(smtpclient.Stage(why.Stage), why.Reply), maxReply), clean(remote, 255)))
		}
	}})
	if err != nil {
		q.o.Log.Error("deliveries could not be released", "count", len(ds), "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	later := due.After(q.o.Now()) // then a look finds them
	if later {
		q.wakeAt(due)
	}
	for _, d := range ds {
		if !later {
			q.await(d.dest)
		}
		q.forget(d)
	}
}
