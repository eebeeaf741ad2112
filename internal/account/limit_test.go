// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

var manyKeys = db.SQL(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
	INSERT INTO api_key (id, account, name, hint, hash, scopes, domain, networks, expires_at, last_used_at, created_at)
	SELECT i, $1, 'key', '', CAST(CAST(i AS TEXT) AS {blob}), '', '', '', 0, 0, 0 FROM n`)

// An account can't exceed the maximum number of API keys, even with concurrent requests.
func TestMostKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, _, acc := open(t, d)
		dbtest.Exec(t, d, manyKeys.With(acc.ID, account.MaxKeys-3))
		var work sync.WaitGroup
		errs := make(chan error, 20)
		for range cap(errs) {
			work.Go(func() {
				_, _, err := a.CreateKey(t.Context(), acc.ID, account.KeyParams{Name: "k", Scopes: []string{"mail.read"}})
				errs <- err
			})
		}
		work.Wait()
		close(errs)
		made := 0
		for err := range errs {
			if err == nil {
				made++
			} else if !fault.Is(err, fault.Conflict) {
				t.Error(err)
			}
		}
		if made != 3 {
			t.Errorf("%d keys were made where 3 had a place", made)
		}
	})
}
