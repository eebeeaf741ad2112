// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	everyKey = db.SQL(`SELECT k.id, k.name, k.hint, a.email FROM api_key k JOIN account a ON a.id = k.account
		WHERE k.id > $1 AND (k.expires_at = 0 OR k.expires_at > $2) ORDER BY k.id LIMIT $3`)
	endEveryKey = db.SQL(`DELETE FROM api_key WHERE id > 0`)
)

// KeyName tells an API key from others.
type KeyName struct {
	ID                db.ID
	Name, Hint, Email string // the last is that of its account
}

// EveryKey calls f for each API key of a database that has not expired.
func (a *Accounts) EveryKey(ctx context.Context, f func(KeyName)) error {
	for last := db.ID(0); ; {
		n := 0
		err := a.db.Each(ctx, everyKey.With(last, db.Micros(a.now()), db.MaxPage), func(r db.Row) error {
			var k KeyName
			err := r.Scan(&k.ID, &k.Name, &k.Hint, &k.Email)
			f(k)
			n, last = n+1, k.ID
			return err
		})
		if err != nil || n < db.MaxPage {
			return err
		}
	}
}

// EndEveryKey deletes all API keys of a restored database, and returns how many.
func EndEveryKey(ctx context.Context, d *db.DB) (int64, error) {
	return d.Exec(ctx, endEveryKey.With())
}
