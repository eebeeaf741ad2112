// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

var insertAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, 'ann@example.com', 'x', 'active', 0)`)

// The limit on unfinished migrations of an account also holds for concurrent requests.
func TestCreateAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		key, err := secret.ParseKey("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff")
		if err != nil {
			t.Fatal(err)
		}
		account := d.NewID()
		dbtest.Exec(t, d, insertAccount.With(account))
		m := migration.New(migration.Options{DB: d, Hub: &notify.Hub{}, Key: key, Now: time.Now})
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
