// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	endEveryLink = db.SQL(`DELETE FROM profile_link WHERE id > 0`)
	endEveryApp  = db.SQL(`DELETE FROM app_password WHERE id > 0`)
	countApps    = db.SQL(`SELECT COUNT(*) FROM app_password WHERE id > 0`)
)

// EndLinks ends all links to profiles of a restored database, and returns how many
// there were.
func EndLinks(ctx context.Context, d *db.DB) (int64, error) { return d.Exec(ctx, endEveryLink.With()) }

// EndAppPasswords deletes all app passwords of a restored database, and returns how
// many there were.
func EndAppPasswords(ctx context.Context, d *db.DB) (int64, error) {
	return d.Exec(ctx, endEveryApp.With())
}

// AppPasswordCount returns how many app passwords a database has.
func AppPasswordCount(ctx context.Context, d *db.DB) (n int64, err error) {
	return n, d.One(ctx, countApps.With(), &n)
}
