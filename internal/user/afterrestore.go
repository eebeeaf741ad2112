// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	deleteAllSessionsQuery = db.SQL(`DELETE FROM dashboard_session WHERE id > 0`)
	deleteAllLinksQuery    = db.SQL(`DELETE FROM dashboard_ticket WHERE id > 0`)
)

// DeleteSessionsAndLinks deletes all sessions and links of a restored database, because some were
// ended or used after the backup was taken. It returns how many there were.
func DeleteSessionsAndLinks(ctx context.Context, d *db.DB) (sessions, links int64, err error) {
	if sessions, err = d.Exec(ctx, deleteAllSessionsQuery.With()); err == nil {
		links, err = d.Exec(ctx, deleteAllLinksQuery.With())
	}
	return sessions, links, err
}
