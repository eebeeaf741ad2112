// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// MostUnnumbered is how far Unnumbered counts.
const MostUnnumbered = 10_000

var unnumbered = db.SQL(`SELECT COUNT(*), COALESCE(MIN(id), 0) FROM (SELECT id FROM event
	WHERE position IS NULL ORDER BY id LIMIT $1) AS counted`)

// Unnumbered counts the events that the sequencer has still to number, and says
// when the oldest of them happened; zero if there is none.
func Unnumbered(ctx context.Context, r db.Reader) (n int, oldest time.Time, err error) {
	var id db.ID
	err = r.One(ctx, unnumbered.With(MostUnnumbered), &n, &id)
	if id != 0 {
		oldest = id.Time()
	}
	return n, oldest, err
}
