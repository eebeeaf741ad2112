// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// numberBatch is how many events are numbered at once (the 500 of numberQuery), which limits
	// how long the writer is busy.
	numberBatch = 500
	// gatherInterval is how long the sequencer waits for more events: one statement for many events
	// costs the writer far less than one each.
	gatherInterval = 25 * time.Millisecond
	// pollInterval is how often the sequencer looks for events of other nodes.
	pollInterval = 5 * time.Second
)

var (
	anyUnnumberedQuery = db.SQL(`SELECT 1 FROM event WHERE position IS NULL ORDER BY id LIMIT 1`)
	// Only the holder of the leader job assigns positions, so the selected events still have none.
	// A second condition on position would let PostgreSQL compare every waiting event with every
	// other.
	numberQuery = db.SQL(`UPDATE event
		SET position = next.n + (SELECT COALESCE(MAX(position), 0) FROM event WHERE position IS NOT NULL)
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n
			FROM (SELECT id FROM event WHERE position IS NULL ORDER BY id LIMIT 500) AS first) AS next
		WHERE event.id = next.id RETURNING account`)
)

// RunSequencer runs the sequencer until ctx ends. Every node runs it; the leader job "sequencer"
// lets one work at a time.
func (l *Log) RunSequencer(ctx context.Context, log *slog.Logger) error {
	sub := l.Hub.Subscribe(notify.Key{Kind: notify.Event})
	defer sub.Close()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	rest := time.NewTimer(gatherInterval)
	defer rest.Stop()
	for {
		n, err := l.AssignPositions(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error("numbering events failed", "error", err)
		}
		if n == numberBatch && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C:
		case <-tick.C:
		}
		rest.Reset(gatherInterval)
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
	}
}

// AssignPositions assigns positions to the next events, in a commit that only the holder of the
// leader job can make. It returns the number of numbered events.
func (l *Log) AssignPositions(ctx context.Context) (int, error) {
	if waiting, err := db.Exists(ctx, l.DB, anyUnnumberedQuery.With()); !waiting || err != nil {
		return 0, err
	}
	var accounts []db.ID
	err := l.DB.Write(ctx, 0, &db.Mutation{
		// The leader job's row stays locked until the commit, so the statement below sees every
		// position that was assigned before.
		Guard: func(b *db.Batch) { l.Node.GuardLeaderJob(b, "sequencer") },
		Apply: func(b *db.Batch) {
			accounts = accounts[:0]
			b.Queue(numberQuery.With()).Each(func(r db.Row) error {
				var account db.ID
				err := r.Scan(&account)
				accounts = append(accounts, account)
				return err
			})
			for _, follow := range l.OnNumbering {
				follow(b)
			}
		},
		AfterCommit: func() {
			for _, followed := range l.AfterNumbering {
				followed()
			}
		},
	})
	if errors.Is(err, lease.ErrNotLeader) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	told := map[db.ID]bool{}
	for _, account := range accounts {
		if !told[account] {
			told[account] = true
			l.Hub.Wake(notify.Key{Kind: notify.EventStream, ID: int64(account)})
		}
	}
	return len(accounts), nil
}
