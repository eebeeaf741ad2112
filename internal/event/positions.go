// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// The next position is counted from the last one, so a row that is nobody's
// event moves it on.
var skipPositionsQuery = db.SQL(`INSERT INTO event (id, position, account, kind, message, data, content, created_at, domain, mailbox, recipient, status)
	SELECT CAST($1 AS BIGINT), COALESCE(MAX(position), 0) + 4294967296, 0, '', 0, '{}', 0, CAST($2 AS BIGINT), 0, 0, '', '' FROM event
	WHERE position IS NOT NULL`)

// SkipPositions has a restored database go on at positions that it has never given:
// those given after the backup are known to streams, which would miss what gets
// them again.
func SkipPositions(ctx context.Context, d *db.DB, now time.Time) error {
	_, err := d.Exec(ctx, skipPositionsQuery.With(d.NewID(), db.Micros(now)))
	return err
}
