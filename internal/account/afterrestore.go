// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	allKeysQuery = db.SQL(`SELECT k.id, k.name, k.hint, a.email FROM api_key k JOIN account a ON a.id = k.account
		WHERE k.id > $1 AND (k.expires_at = 0 OR k.expires_at > $2) ORDER BY k.id LIMIT $3`)
	deleteAllKeysQuery = db.SQL(`DELETE FROM api_key WHERE id > 0`)
)

// KeyIdentity identifies an API key.
type KeyIdentity struct {
	ID                db.ID
	Name, Hint, Email string // Email is that of the account
}

// EachKey calls f for each API key of a database that has not expired.
func (a *Accounts) EachKey(ctx context.Context, f func(KeyIdentity)) error {
	for last := db.ID(0); ; {
		n := 0
		err := a.db.Each(ctx, allKeysQuery.With(last, db.Micros(a.now()), db.MaxPageSize), func(r db.Row) error {
			var k KeyIdentity
			err := r.Scan(&k.ID, &k.Name, &k.Hint, &k.Email)
			f(k)
			n, last = n+1, k.ID
			return err
		})
		if err != nil || n < db.MaxPageSize {
			return err
		}
	}
}

// DeleteAllKeys deletes all API keys of a restored database, and returns how many there were.
func DeleteAllKeys(ctx context.Context, d *db.DB) (int64, error) {
	return d.Exec(ctx, deleteAllKeysQuery.With())
}
