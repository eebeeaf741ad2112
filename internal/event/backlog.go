// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// MaxUnnumbered is the highest count that CountUnnumbered returns.
const MaxUnnumbered = 10_000

var countUnnumberedQuery = db.SQL(`SELECT COUNT(*), COALESCE(MIN(id), 0) FROM (SELECT id FROM event
	WHERE position IS NULL ORDER BY id LIMIT $1) AS counted`)

// CountUnnumbered counts the events that wait for the sequencer, and returns the time of the
// oldest; zero if there is none.
func CountUnnumbered(ctx context.Context, r db.Reader) (n int, oldest time.Time, err error) {
	var id db.ID
	err = r.One(ctx, countUnnumberedQuery.With(MaxUnnumbered), &n, &id)
	if id != 0 {
		oldest = id.Time()
	}
	return n, oldest, err
}
