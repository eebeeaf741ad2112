// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/secret"
)

// exposureInterval is how often it is recorded at most that a key was sent without TLS.
const exposureInterval = 24 * time.Hour

var setExposedQuery = db.SQL(`UPDATE api_key SET exposed_at = $2 WHERE hash = $1 AND exposed_at <= $3 RETURNING id, account, name`)

// RecordCleartextKey records at the key, and in the audit log, that its token was sent without TLS.
// noted is false if the token belongs to no key, or if any node recorded it within a day. Only ID,
// Account and Name of k are set.
func (a *Accounts) RecordCleartextKey(ctx context.Context, token string, from netip.Addr) (k Key, noted bool, err error) {
	if !secret.IsWellFormedToken(secret.APIKeyPrefix, token) {
		return Key{}, false, nil
	}
	now := a.now()
	err = a.db.Tx(ctx, func(tx *db.Tx) error {
		err := tx.One(ctx, setExposedQuery.With(secret.HashToken(token), db.Micros(now), db.Micros(now.Add(-exposureInterval))), &k.ID, &k.Account, &k.Name)
		if err != nil {
			return err
		}
		log := audit.Log{DB: a.db, Now: a.now}
		return log.WriteTx(ctx, tx, audit.Entry{Account: k.Account, Action: "exposed", Object: k.ID.String(),
			Actor:       audit.Actor{Kind: audit.ActorAPIKey, ID: k.ID, Name: k.Name, IP: from},
			Description: "Sent the API key without TLS. Others may have read it: replace it."})
	})
	return k, err == nil, db.IfNoRow(err, nil)
}
