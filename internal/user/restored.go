// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	endEverySession = db.SQL(`DELETE FROM dashboard_session WHERE id > 0`)
	endEveryTicket  = db.SQL(`DELETE FROM dashboard_ticket WHERE id > 0`)
)

// EndAll ends all sessions and links of a restored database: some were ended or used
// after the backup was taken. It returns how many there were.
func EndAll(ctx context.Context, d *db.DB) (sessions, links int64, err error) {
	if sessions, err = d.Exec(ctx, endEverySession.With()); err == nil {
		links, err = d.Exec(ctx, endEveryTicket.With())
	}
	return sessions, links, err
}
