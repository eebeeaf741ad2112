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

// chunk bounds how many events are numbered in one transaction, and so how
// long the writer is kept.
const chunk = 500

var (
	newest   = db.SQL(`SELECT COALESCE(MAX(position), 0) FROM event WHERE position IS NOT NULL`)
	unplaced = db.SQL(`SELECT id, account FROM event WHERE position IS NULL ORDER BY id LIMIT $1`)
	place    = db.SQL(`UPDATE event SET position = $2 WHERE id = $1 AND position IS NULL`)
)

// Number runs the sequencer until ctx ends. Every node runs it; the duty
// "sequencer" lets one at a time work. It looks when woken, and every 5 s for
// what other nodes recorded.
func (l *Log) Number(ctx context.Context, log *slog.Logger) error {
	sub := l.Hub.Subscribe(signal.Key{Kind: signal.Event})
	defer sub.Close()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
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
	}
}

var errNotMine = errors.New("another node numbers the events")

// NumberSome gives the next events their positions, in one transaction that
// only the holder of the duty can make. It returns how many.
func (l *Log) NumberSome(ctx context.Context) (int, error) {
	if err := l.DB.One(ctx, unplaced.With(1), new(db.ID), new(db.ID)); errors.Is(err, db.ErrNoRow) {
		return 0, nil
	}
	type row struct{ id, account db.ID }
	var found []row
	err := l.DB.Tx(ctx, func(tx *db.Tx) error {
		mine, err := l.Node.Duty(ctx, tx, "sequencer")
		if err != nil {
			return err
		}
		if !mine {
			return errNotMine
		}
		var position int64
		if err := tx.One(ctx, newest.With(), &position); err != nil {
			return err
		}
		found = found[:0]
		err = tx.Each(ctx, unplaced.With(chunk), func(r db.Row) error {
			var f row
			err := r.Scan(&f.id, &f.account)
			found = append(found, f)
			return err
		})
		if err != nil {
			return err
		}
		for _, f := range found {
			position++
			if _, err := tx.Exec(ctx, place.With(f.id, position)); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errNotMine) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	told := map[db.ID]bool{}
	for _, f := range found {
		if !told[f.account] {
			told[f.account] = true
			l.Hub.Wake(signal.Key{Kind: signal.Stream, ID: int64(f.account)})
		}
	}
	return len(found), nil
}
