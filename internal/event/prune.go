// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// pruneQuery deletes the oldest events, but never the newest one: the next position
// is counted from that, and no position may be given twice, or who remembers
// one would miss events.
var pruneQuery = db.SQL(`DELETE FROM event WHERE id IN (SELECT id FROM (SELECT id, created_at FROM event
		WHERE position IS NOT NULL AND position > $1 AND position < (SELECT MAX(position) FROM event WHERE position IS NOT NULL)
		ORDER BY position LIMIT $3) AS oldest
	WHERE created_at < $2) RETURNING position`)

// Prune deletes, in one commit, at most limit events that were recorded before a
// time, the first ones first, and returns how many; 0: there are no more. An
// event without a position stays, and so does the last one with any.
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
	// What was deleted is not looked through again, until a later round looks
	// whether it left anything behind.
	if l.prunedTo = last; n == 0 {
		l.prunedTo = 0
	}
	return n, nil
}
