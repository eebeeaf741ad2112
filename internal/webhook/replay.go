// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// maxReplay is how many events one Replay looks at.
	maxReplay = 50_000
	// replayChunkSize is how many one transaction of it takes (also in replayChunkQuery).
	replayChunkSize = 500
	// replaySlack is how much earlier than its time an event's id may be made.
	replaySlack = time.Second
)

var (
	// Ids are in the order of time, positions nearly so: the lowest of the
	// first events' positions is where to begin.
	replayStartQuery = db.SQL(`SELECT COALESCE(MIN(position), 0) FROM (SELECT position FROM event
		WHERE id >= $1 AND position IS NOT NULL ORDER BY id LIMIT 1000) AS first`)
	replayChunkQuery = db.SQL(`SELECT COALESCE(MAX(position), 0), COUNT(*), COALESCE(MAX(created_at), 0) FROM (SELECT position, created_at FROM event
		WHERE
		{sqlite}account = $1 AND position > $2 ORDER BY position LIMIT 500
		{postgres}(account, position) > ($1, $2) AND account <= $1 AND position IS NOT NULL ORDER BY account, position LIMIT 500
		) AS chunk`)
	// The next events by position may be older than those before them.
	nextReplayTimeQuery = db.SQL(`SELECT COALESCE(MIN(created_at), 0) FROM (SELECT created_at FROM event
		WHERE
		{sqlite}account = $1 AND position > $2 ORDER BY position LIMIT 500
		{postgres}(account, position) > ($1, $2) AND account <= $1 AND position IS NOT NULL ORDER BY account, position LIMIT 500
		) AS next`)
	replayEventsQuery = db.SQL(`INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, trouble, body, created_at, updated_at, content)
		SELECT w.id, e.id, e.kind, 'pending', 0, 0, $5, 0, '', '', $5, $5, w.content
		FROM event AS e CROSS JOIN webhook AS w
		WHERE w.id = $2 AND w.status = 'enabled' AND e.account = $1 AND e.position IS NOT NULL AND e.position > $3 AND e.position <= $4
			AND e.created_at >= $6 AND ` + subscriptionSQL + `
		ON CONFLICT (webhook, id) DO UPDATE SET state = 'pending', tries = 0, due_at = excluded.due_at, updated_at = excluded.updated_at, content = excluded.content
			WHERE webhook_delivery.state = 'failed' OR webhook_delivery.state = 'delivered' AND NOT $7`)
)

// ReplayResult says what a Replay did.
type ReplayResult struct {
	Deliveries int // that are pending because of it
	// Through is up to when events were looked at. More says that there are
	// later ones: replay again since then.
	Through time.Time
	More    bool
}

// Replay delivers the stored events since a time again, those that the webhook
// wants as it is now: also those that happened while it was disabled or not
// there yet. With missing it leaves out what was delivered. What is pending
// stays as it is. It looks at 50,000 events at most, and is no single
// transaction: after an error the events up to some time are done, and it may be
// repeated. A fault.Conflict says that the webhook is disabled.
func (h *Service) Replay(ctx context.Context, account, hook db.ID, since time.Time, missing bool) (ReplayResult, error) {
	w, err := h.Get(ctx, account, hook)
	if err != nil {
		return ReplayResult{}, err
	}
	if w.Status != StatusEnabled {
		return ReplayResult{}, errDisabled
	}
	out := ReplayResult{Through: since}
	var from int64
	if err := h.o.DB.One(ctx, replayStartQuery.With(db.MinIDAt(since.Add(-replaySlack))), &from); err != nil || from == 0 {
		return out, err
	}
	from--
	for seen := 0; seen < maxReplay; {
		var to, count, last int64
		if err := h.o.DB.One(ctx, replayChunkQuery.With(account, from), &to, &count, &last); err != nil || count == 0 {
			return out, err
		}
		n, err := h.replay(ctx, replayEventsQuery.With(account, hook, from, to, db.Micros(h.o.Now()), db.Micros(since), missing), hook)
		if err != nil {
			return out, err
		}
		out.Deliveries += int(n)
		if at := db.Time(last); at.After(out.Through) {
			out.Through = at
		}
		if from, seen = to, seen+int(count); count < replayChunkSize {
			return out, nil
		}
	}
	var next int64
	if err := h.o.DB.One(ctx, nextReplayTimeQuery.With(account, from), &next); err != nil || next == 0 {
		return out, err
	}
	out.More = true
	if at := db.Time(next); at.After(since) { // else nobody would come further
		out.Through = at
	}
	return out, nil
}

func (h *Service) replay(ctx context.Context, s db.Statement, hook db.ID) (n int64, err error) {
	err = h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if n, err = tx.Exec(ctx, s); err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, wakeDispatchQuery.With(hook, db.Micros(h.o.Now())))
		tx.AfterCommit(func() { h.wake(hook) })
		return err
	})
	return n, err
}
