// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// The wait between attempts of a failing write doubles from the minimum to the maximum.
const (
	minWriteRetry = 50 * time.Millisecond
	maxWriteRetry = 10 * time.Second
)

// write commits a mutation, however long the database fails.
func (q *Queue) write(key db.ID, job *db.Mutation) error {
	return q.retryWrite(func(ctx context.Context) error { return q.o.DB.Write(ctx, key, job) })
}

// retryWrite repeats try until it succeeds or returns errSuperseded, or the queue has ended. No
// attempt begins meanwhile: mail whose outcome can't be written would be sent again and again.
func (q *Queue) retryWrite(try func(ctx context.Context) error) error {
	err := try(q.writeCtx)
	if err == nil || errors.Is(err, errSuperseded) {
		return err
	}
	q.mu.Lock()
	q.unwritten++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.unwritten--; q.unwritten == 0 {
			q.dispatch.Resume()
		}
	}()
	for wait := minWriteRetry; ; wait = min(2*wait, maxWriteRetry) {
		q.o.Log.Error("the database does not take what happened to a delivery; no attempt begins until it does", "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-q.writeCtx.Done():
			timer.Stop()
			return err
		}
		if err = try(q.writeCtx); err == nil || errors.Is(err, errSuperseded) || errors.Is(err, db.ErrClosed) {
			return err
		}
	}
}

var (
	releaseQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN hold > 0 THEN 0 ELSE NULL END, due_at = $4
		WHERE message = $1 AND n = $2 AND lease = $3 AND state IN ('scheduled', 'queued', 'deferred')`)
	releaseWithReplyQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN hold > 0 THEN 0 ELSE NULL END, due_at = $4, code = $5, enhanced = $6, reply = $7, remote_host = $8
		WHERE message = $1 AND n = $2 AND lease = $3 AND state IN ('scheduled', 'queued', 'deferred')`)
)

// release returns untried deliveries to their rows, due at a time, or as before if that is zero.
// why, if not nil, becomes their last reply, without the addresses of the message that got it.
func (q *Queue) release(ds []*Delivery, due time.Time, why *Outcome) {
	for len(ds) > 0 {
		n := min(len(ds), 100)
		chunk := ds[:n]
		ds = ds[n:]
		q.startWrite(func() { q.releaseBatch(chunk, due, why) })
	}
}

func (q *Queue) releaseBatch(ds []*Delivery, due time.Time, why *Outcome) {
	err := q.write(ds[0].Message, &db.Mutation{Guard: func(b *db.Batch) {
		for _, d := range ds {
			at := due
			if at.IsZero() {
				at = d.due
			}
			if at.After(d.ExpiresAt) {
				at = d.ExpiresAt
			}
			if why == nil {
				b.Queue(releaseQuery.With(d.Message, d.N, d.Lease, db.Micros(at)))
				continue
			}
			remote := why.Remote
			if remote == "" {
				remote = why.Host
			}
			b.Queue(releaseWithReplyQuery.With(d.Message, d.N, d.Lease, db.Micros(at),
				why.Code, db.CleanText(why.Enhanced, 16), db.CleanText(smtpclient.RedactAddresses(smtpclient.Stage(why.Stage), why.Reply), maxReply), db.CleanText(remote, 255)))
		}
	}})
	if err != nil {
		q.o.Log.Error("deliveries could not be released", "count", len(ds), "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	later := due.After(q.o.Now()) // a later poll finds them
	if later {
		q.wakeAt(due)
	}
	for _, d := range ds {
		if !later {
			q.dispatch.MarkWaiting(d.Destination)
		}
		q.dispatch.Forget(d)
	}
}
