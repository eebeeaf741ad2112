// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/secret"
)

// exposedEvery bounds how often it is noted that a key was sent without TLS.
const exposedEvery = 24 * time.Hour

var exposeKey = db.SQL(`UPDATE api_key SET exposed_at = $2 WHERE hash = $1 AND exposed_at <= $3 RETURNING id, account, name`)

// Exposed notes that a token was sent without TLS. noted is false for a token
// that is no key's, and where the same was noted within a day, by any node.
// Of k only ID, Account and Name are set.
func (a *Accounts) Exposed(ctx context.Context, token string) (k Key, noted bool, err error) {
	if !secret.WellFormed(secret.APIKey, token) {
		return Key{}, false, nil
	}
	now := a.now()
	err = a.db.Tx(ctx, func(tx *db.Tx) error {
		return tx.One(ctx, exposeKey.With(secret.Hash(token), db.Micros(now), db.Micros(now.Add(-exposedEvery))), &k.ID, &k.Account, &k.Name)
	})
	if errors.Is(err, db.ErrNoRow) {
		return Key{}, false, nil
	}
	return k, err == nil, err
}
