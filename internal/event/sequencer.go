// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// chunk is how many events are numbered at a time (the 500 of number),
	// which bounds how long the writer is kept.
	chunk = 500
	// pause is how long the sequencer lets events gather: one statement
	// for many costs the writer far less than one for each.
	pause = 25 * time.Millisecond
	// look is how often it looks for what other nodes recorded.
	look = 5 * time.Second
)

var (
	waiting = db.SQL(`SELECT 1 FROM event WHERE position IS NULL ORDER BY id LIMIT 1`)
	// Only the holder of the duty gives positions, so none of these has one by
	// now; to ask again would let PostgreSQL compare all that wait with all.
	number = db.SQL(`UPDATE event
		SET position = next.n + (SELECT COALESCE(MAX(position), 0) FROM event WHERE position IS NOT NULL)
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n
			FROM (SELECT id FROM event WHERE position IS NULL ORDER BY id LIMIT 500) AS first) AS next
		WHERE event.id = next.id RETURNING account`)
)

// Number runs the sequencer until ctx ends. Every node runs it; the duty
// "sequencer" lets one at a time work.
func (l *Log) Number(ctx context.Context, log *slog.Logger) error {
	sub := l.Hub.Subscribe(signal.Key{Kind: signal.Event})
	defer sub.Close()
	tick := time.NewTicker(look)
	defer tick.Stop()
	rest := time.NewTimer(pause)
	defer rest.Stop()
	for {
		n, err := l.NumberSome(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error("numbering events failed", "error", err)
		}
		if n == chunk && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C:
		case <-tick.C:
		}
		rest.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
	}
}

var errNotMine = errors.New("another node numbers the events")

// NumberSome gives the next events their positions, in a commit that only the
// holder of the duty can make. It returns how many got one.
func (l *Log) NumberSome(ctx context.Context) (int, error) {
	err := l.DB.One(ctx, waiting.With(), new(int64))
	if errors.Is(err, db.ErrNoRow) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var accounts []db.ID
	err = l.DB.Write(ctx, 0, &db.Job{
		// The duty's row stays locked until the commit, so the statement
		// below sees every position that was given before.
		Guard: func(b *db.Batch) { l.Node.HoldDuty(b, "sequencer", errNotMine) },
		Apply: func(b *db.Batch) {
			accounts = accounts[:0]
			b.Queue(number.With()).Each(func(r db.Row) error {
				var account db.ID
				err := r.Scan(&account)
				accounts = append(accounts, account)
				return err
			})
			for _, follow := range l.Follow {
				follow(b)
			}
		},
		AfterCommit: func() {
			for _, followed := range l.Followed {
				followed()
			}
		},
	})
	if errors.Is(err, errNotMine) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	told := map[db.ID]bool{}
	for _, account := range accounts {
		if !told[account] {
			told[account] = true
			l.Hub.Wake(signal.Key{Kind: signal.Stream, ID: int64(account)})
		}
	}
	return len(accounts), nil
}
