// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// maxReplay is the maximum of events that one Replay reads.
	maxReplay = 50_000
	// replayChunkSize is how many events one transaction handles (also in replayChunkQuery).
	replayChunkSize = 500
	// replaySlack is how much earlier than an event's time its id may be generated.
	replaySlack = time.Second
)

var (
	// Ids are ordered by time, positions only nearly so. The replay therefore begins at the lowest
	// position among the first events.
	replayStartQuery = db.SQL(`SELECT COALESCE(MIN(position), 0) FROM (SELECT position FROM event
		WHERE id >= $1 AND position IS NOT NULL ORDER BY id LIMIT 1000) AS first`)
	replayChunkQuery = db.SQL(`SELECT COALESCE(MAX(position), 0), COUNT(*), COALESCE(MAX(created_at), 0) FROM (SELECT position, created_at FROM event
		WHERE
		{sqlite}account = $1 AND position > $2 ORDER BY position LIMIT 500
		{postgres}(account, position) > ($1, $2) AND account <= $1 AND position IS NOT NULL ORDER BY account, position LIMIT 500
		) AS chunk`)
	// Events with higher positions may be older than those before them.
	nextReplayTimeQuery = db.SQL(`SELECT COALESCE(MIN(created_at), 0) FROM (SELECT created_at FROM event
		WHERE
		{sqlite}account = $1 AND position > $2 ORDER BY position LIMIT 500
		{postgres}(account, position) > ($1, $2) AND account <= $1 AND position IS NOT NULL ORDER BY account, position LIMIT 500
		) AS next`)
	replayEventsQuery = db.SQL(`INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, error, body, created_at, updated_at, content)
		SELECT w.id, e.id, e.kind, 'pending', 0, 0, $5, 0, '', '', $5, $5, w.content
		FROM event AS e CROSS JOIN webhook AS w
		WHERE w.id = $2 AND w.status = 'enabled' AND e.account = $1 AND e.position IS NOT NULL AND e.position > $3 AND e.position <= $4
			AND e.created_at >= $6 AND ` + subscriptionSQL + `
		ON CONFLICT (webhook, id) DO UPDATE SET state = 'pending', tries = 0, due_at = excluded.due_at, updated_at = excluded.updated_at, content = excluded.content
			WHERE webhook_delivery.state = 'failed' OR webhook_delivery.state = 'delivered' AND NOT $7`)
)

// ReplayResult is the result of a Replay.
type ReplayResult struct {
	Deliveries int // deliveries that Replay made pending
	// Through is the time up to which events were read. More reports whether there are later ones:
	// call Replay again with Through as since.
	Through time.Time
	More    bool
}

// Replay delivers stored events since a time again, by the webhook's current subscription. These
// include events from before it existed and while it was disabled. With missing it leaves out
// delivered events. Pending deliveries stay unchanged. A replay of any event ends the webhook's
// pause. Replay reads at most 50,000 events, and is not a single transaction: after an error, events
// up to some time are done, and the caller may repeat it. It returns a fault.Conflict if the webhook
// is disabled.
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
		var to, count int64
		var last time.Time
		if err := h.o.DB.One(ctx, replayChunkQuery.With(account, from), &to, &count, db.TimeScanner(&last)); err != nil || count == 0 {
			return out, err
		}
		wake := wakeDispatchQuery
		if out.Deliveries == 0 {
			wake = endPauseQuery
		}
		n, err := h.replay(ctx, replayEventsQuery.With(account, hook, from, to, db.Micros(h.o.Now()), db.Micros(since), missing), wake, hook)
		if err != nil {
			return out, err
		}
		out.Deliveries += int(n)
		if last.After(out.Through) {
			out.Through = last
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
	if at := db.Time(next); at.After(since) { // otherwise repeated calls would make no progress
		out.Through = at
	}
	return out, nil
}

func (h *Service) replay(ctx context.Context, s db.Statement, wake *db.Query, hook db.ID) (n int64, err error) {
	err = h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if n, err = tx.Exec(ctx, s); err != nil || n == 0 {
			return err
		}
		tx.AfterCommit(func() { h.wake(hook) })
		return tx.Run(ctx, wake.With(hook, db.Micros(h.o.Now())))
	})
	return n, err
}
