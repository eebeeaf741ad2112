// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// pruneQuery deletes the oldest events, but never the newest one: the next position is counted from
// it. No position may be assigned twice, or readers that remember it would miss events.
var pruneQuery = db.SQL(`DELETE FROM event WHERE id IN (SELECT id FROM (SELECT id, created_at FROM event
		WHERE position IS NOT NULL AND position > $1 AND position < (SELECT MAX(position) FROM event WHERE position IS NOT NULL)
		ORDER BY position LIMIT $3) AS oldest
	WHERE created_at < $2) RETURNING position`)

// Prune deletes, in one commit, at most limit events that were recorded before a time, oldest
// first. It returns the number of deleted events; 0: there are no more. It never deletes events
// without a position, nor the last one with a position.
func (l *Log) Prune(ctx context.Context, before time.Time, limit int) (n int, err error) {
	l.pruning.Lock()
	defer l.pruning.Unlock()
	var last int64
	err = l.DB.Write(ctx, 0, &db.Mutation{Apply: func(b *db.Batch) {
		n, last = 0, l.prunedTo
		b.Queue(pruneQuery.With(l.prunedTo, db.Micros(before), limit)).Each(func(r db.Row) error {
			var position int64
			err := r.Scan(&position)
			n++
			last = max(last, position)
			return err
		})
	}})
	if err != nil {
		return 0, err
	}
	// The next calls skip deleted positions, until a later round checks whether events were left
	// behind.
	if l.prunedTo = last; n == 0 {
		l.prunedTo = 0
	}
	return n, nil
}
