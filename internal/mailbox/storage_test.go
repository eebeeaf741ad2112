// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

const mb = 1 << 20

// summed returns the sum of the account's live quotas.
func (h *fixture) summed() (quotas int64) {
	h.t.Helper()
	sum := db.SQL(`SELECT CAST(COALESCE(SUM(CASE WHEN deleted_at = 0 THEN quota ELSE 0 END), 0) AS BIGINT) FROM mailbox WHERE account = $1`)
	if err := h.db.One(h.t.Context(), sum.With(h.account), &quotas); err != nil {
		h.t.Fatal(err)
	}
	return quotas
}

// wantSum fails unless the stored sum equals that of the mailboxes.
func (h *fixture) wantSum(when string) {
	h.t.Helper()
	want := h.summed()
	if got, _, err := h.StorageUsage(h.t.Context(), h.account); err != nil || got != want {
		h.t.Errorf("%s the quotas are %d, %v; want %d", when, got, err, want)
	}
}

// insertDirectly creates a mailbox without hashing a password, for tests with many.
var (
	insertDirectly = db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, generation, quota, status, created_at, deleted_at)
		VALUES ($1, $2, $3, $4, $5, $6, '', 1, $7, 'active', 0, $8)`)
	insertNoUsage = db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) VALUES ($1, 0, 0, 0)`)
	addAllotted   = db.SQL(`INSERT INTO mailbox_storage (account, allotted) VALUES ($1, $2)
		ON CONFLICT (account) DO UPDATE SET allotted = mailbox_storage.allotted + excluded.allotted`)
)

func (h *fixture) createDirectly(local string, quota int64) db.ID {
	h.t.Helper()
	id := h.db.NewID()
	dbtest.Exec(h.t, h.db, insertDirectly.With(id, h.account, h.domain, local, local+"@demo.test", "", quota, 0), insertNoUsage.With(id), addAllotted.With(h.account, quota))
	return id
}

// Many goroutines create, change, delete and restore mailboxes of an account. The sum is exact at the end and never exceeds the limit.
func TestQuotasOfMany(t *testing.T) {
	each(t, func(h *fixture) {
		const limit, workers, rounds = 150 * mb, 6, 6
		h.StorageLimit = func(context.Context, db.ID) (int64, error) { return limit, nil }
		for i := range 5 {
			h.createDirectly(fmt.Sprint("old", i), mb)
		}
		old := h.createDirectly("old", 5*mb)
		ctx, t := h.t.Context(), h.t
		var work, look sync.WaitGroup
		var done, refused atomic.Bool
		look.Go(func() {
			for !done.Load() {
				if sum, _, err := h.StorageUsage(ctx, h.account); err != nil || sum > limit {
					t.Errorf("the quotas are %d, %v", sum, err)
					return
				}
			}
		})
		expect := func(what string, err error, codes ...string) {
			var f *fault.Error
			for _, code := range codes {
				if errors.As(err, &f) && f.Code == code {
					refused.Store(true)
					return
				}
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		password := good
		for w := range workers {
			work.Go(func() {
				for i := range rounds {
					box, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: fmt.Sprintf("w%d-%d", w, i), QuotaMB: new(10), Password: &password})
					expect("create", err, "storage_limit_exceeded")
					if err != nil {
						continue
					}
					_, err = h.Update(ctx, h.account, box.ID, mailbox.Change{QuotaMB: new(30 - w)})
					expect("change", err, "storage_limit_exceeded")
					if i%3 > 0 {
						expect("delete", h.Delete(ctx, h.account, box.ID))
					}
					if i%3 > 1 {
						_, err := h.Restore(ctx, h.account, box.ID)
						expect("restore", err, "storage_limit_exceeded")
					}
				}
			})
		}
		work.Go(func() {
			_, err := h.Update(ctx, h.account, old, mailbox.Change{QuotaMB: new(3)})
			expect("reduce", errors.Join(err, h.Delete(ctx, h.account, old)))
		})
		work.Wait()
		done.Store(true)
		look.Wait()
		if !refused.Load() {
			t.Error("the limit was never reached")
		}
		h.wantSum("at the end")
	})
}

// The sum of the quotas follows each change of a mailbox, and is read, not summed up again.
func TestStoredSumOfQuotas(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		check := func(when string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			h.wantSum(when)
		}
		id := h.create("ann", good).ID
		check("created,", nil)
		_, err := h.Update(ctx, h.account, id, mailbox.Change{QuotaMB: new(9)})
		check("changed,", err)
		check("deleted,", h.Delete(ctx, h.account, id))
		_, err = h.Restore(ctx, h.account, id)
		check("restored,", err)
		check("deleted again,", h.Delete(ctx, h.account, id))
		h.now = h.now.Add(2 * mailbox.RestorePeriod)
		n, err := h.Purge(ctx)
		if n != 1 {
			t.Errorf("purged %d", n)
		}
		check("purged,", err)

		h.create("bob", good)
		dbtest.Exec(t, h.db, db.SQL(`UPDATE mailbox_storage SET allotted = allotted + 1`).With())
		if got, _, err := h.StorageUsage(ctx, h.account); err != nil || got != h.summed()+1 {
			t.Errorf("the quotas are %d, %v; want what is stored", got, err)
		}
	})
}

// The usage of more than a thousand mailboxes is cached for a minute. The usage of up to a
// thousand, and the sum of the quotas, are exact.
func TestUseOfMany(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		var ids []db.ID
		used := func() int64 {
			t.Helper()
			quotas, used, err := h.StorageUsage(ctx, h.account)
			if err != nil || quotas != int64(len(ids))*mb {
				t.Fatalf("the quotas of %d are %d, %v", len(ids), quotas, err)
			}
			return used
		}
		for len(ids) < mailbox.MaxSummedMailboxes {
			ids = append(ids, h.createDirectly(fmt.Sprint("box", len(ids)), mb))
		}
		for i := range int64(2) {
			h.deposit(ids[0], 5000, 1)
			if got := used(); got != 5000*(i+1) {
				t.Errorf("%d mailboxes hold %d", len(ids), got)
			}
		}
		ids = append(ids, h.createDirectly("one-more", mb))
		for range 2 {
			h.deposit(ids[1], 5000, 1)
			if got := used(); got != 15_000 {
				t.Errorf("%d mailboxes hold %d within a minute", len(ids), got)
			}
		}
		h.now = h.now.Add(mailbox.UsedSumTTL - time.Second)
		if got := used(); got != 15_000 {
			t.Errorf("%d mailboxes hold %d within a minute", len(ids), got)
		}
		h.now = h.now.Add(time.Second)
		if got := used(); got != 20_000 {
			t.Errorf("%d mailboxes hold %d after a minute", len(ids), got)
		}
	})
}
