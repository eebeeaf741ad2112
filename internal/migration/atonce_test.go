// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/notify"
)

// The limit on unfinished migrations of an account also holds for concurrent requests.
func TestCreateAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		account := testkit.AddAccount(t, d)
		m := migration.New(migration.Options{DB: d, Hub: &notify.Hub{}, Key: testkit.Key(t), Now: time.Now})
		var made atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range 250 {
			wg.Go(func() {
				<-begin
				_, err := m.Create(t.Context(), migration.Target{Account: account, Domain: 2, Mailbox: 3},
					migration.Source{Host: "imap.example.com", Username: fmt.Sprint("user", i), Password: "x"})
				switch {
				case err == nil:
					made.Add(1)
				case !fault.Is(err, fault.Conflict):
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		if made.Load() != 200 {
			t.Errorf("%d migrations were made", made.Load())
		}
	})
}
