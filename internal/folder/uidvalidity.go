// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	oldestValidityQuery = db.SQL(`SELECT COALESCE(MIN(uidvalidity), 0) FROM folder`)
	renewValidityQuery  = db.SQL(`UPDATE folder SET uidvalidity = uidvalidity + $1 WHERE id > 0`)
)

// RenewUIDValidity gives every folder of a restored database a new UIDVALIDITY, greater than any
// that it has had. UIDs given after the backup will be given again, to other messages (RFC 9051
// section 2.3.1.1).
func RenewUIDValidity(ctx context.Context, d *db.DB, now time.Time) error {
	return d.Tx(ctx, func(tx *db.Tx) error {
		var oldest int64
		if err := tx.One(ctx, oldestValidityQuery.With(), &oldest); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, renewValidityQuery.With(max(now.Unix()-oldest, 1)))
		return err
	})
}
