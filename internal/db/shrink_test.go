// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// TestShrink releases caches during reads and writes, and checks that no data is lost.
func TestShrink(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		var work sync.WaitGroup
		for w := range 4 {
			work.Go(func() {
				for i := range 50 {
					id, name := d.NewID(), fmt.Sprint("account ", i, " of ", w)
					if _, err := d.Exec(ctx, addAccount.With(id, fmt.Sprintf("a%d@b%d.example", i, w), name)); err != nil {
						t.Error(err)
					}
					var found string
					if err := d.One(ctx, nameOf.With(id), &found); err != nil || found != name {
						t.Errorf("%q instead of %q, %v", found, name, err)
					}
				}
			})
		}
		for range 20 {
			if err := d.ShrinkMemory(ctx); err != nil {
				t.Error(err)
			}
		}
		work.Wait()
		n := 0
		if err := d.Each(ctx, accounts.With(0), func(db.Row) error { n++; return nil }); err != nil || n != 200 {
			t.Errorf("%d accounts, %v", n, err)
		}
	})
}
