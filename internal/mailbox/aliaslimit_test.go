// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var manyAliases = db.SQL(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3)
	INSERT INTO alias (id, account, domain, local_part, address, created_at, updated_at)
	SELECT i, $1, $2, 'a' || CAST(i AS TEXT), 'a' || CAST(i AS TEXT), 0, 0 FROM n`)

// An account can't exceed the maximum number of aliases, even with concurrent requests.
func TestMostAliases(t *testing.T) {
	each(t, func(h *fixture) {
		bob := h.create("bob", good)
		dbtest.Exec(h.t, h.db, manyAliases.With(h.account, h.domain, mailbox.MaxAliases-2))
		var work sync.WaitGroup
		errs := make(chan error, 10)
		for n := range cap(errs) {
			work.Go(func() {
				_, err := h.CreateAlias(h.t.Context(), h.account, fmt.Sprintf("b%d@demo.test", n), []string{bob.ID.String()})
				errs <- err
			})
		}
		work.Wait()
		close(errs)
		made := 0
		for err := range errs {
			if err == nil {
				made++
			} else {
				wantKind(h.t, err, fault.Conflict, "too_many_aliases")
			}
		}
		if made != 2 {
			h.t.Errorf("%d aliases were made where 2 had a place", made)
		}
	})
}
