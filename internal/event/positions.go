// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// skippedPositions is how many positions a restored database skips.
const skippedPositions = 1 << 32

// The sequencer counts from the last position, so a row without an account raises the next
// position.
var skipPositionsQuery = db.SQL(`INSERT INTO event (id, position, account, kind, message, data, content, created_at, domain, mailbox, recipient, status)
	SELECT CAST($1 AS BIGINT), COALESCE(MAX(position), 0) + CAST($3 AS BIGINT), 0, '', 0, '{}', 0, CAST($2 AS BIGINT), 0, 0, '', '' FROM event
	WHERE position IS NOT NULL`)

// SkipPositions makes a restored database continue at positions that it has never used. Streams
// know positions that were assigned after the backup, and would miss events that get them again.
func SkipPositions(ctx context.Context, d *db.DB, now time.Time) error {
	return d.Run(ctx, skipPositionsQuery.With(d.NewID(), db.Micros(now), int64(skippedPositions)))
}
