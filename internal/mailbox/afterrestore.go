// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	deleteAllLinksQuery        = db.SQL(`DELETE FROM profile_link WHERE id > 0`)
	deleteAllAppPasswordsQuery = db.SQL(`DELETE FROM app_password WHERE id > 0`)
	countAppPasswordsQuery     = db.SQL(`SELECT COUNT(*) FROM app_password WHERE id > 0`)
)

// DeleteProfileLinks deletes all profile links of a restored database and returns how many there
// were.
func DeleteProfileLinks(ctx context.Context, d *db.DB) (int64, error) {
	return d.Exec(ctx, deleteAllLinksQuery.With())
}

// DeleteAppPasswords deletes all app passwords of a restored database and returns how many there
// were.
func DeleteAppPasswords(ctx context.Context, d *db.DB) (int64, error) {
	return d.Exec(ctx, deleteAllAppPasswordsQuery.With())
}

// CountAppPasswords returns how many app passwords a database has.
func CountAppPasswords(ctx context.Context, d *db.DB) (n int64, err error) {
	return n, d.One(ctx, countAppPasswordsQuery.With(), &n)
}
