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

// summed returns the sum of the account's live quotas; uncounted is how many mailboxes are not
// counted correctly.
func (h *fixture) summed() (quotas, uncounted int64) {
	h.t.Helper()
	sum := db.SQL(`SELECT CAST(COALESCE(SUM(CASE WHEN deleted_at = 0 THEN quota ELSE 0 END), 0) AS BIGINT),
		COUNT(CASE WHEN counted_quota <> CASE WHEN deleted_at = 0 THEN quota ELSE 0 END THEN 1 END) FROM mailbox WHERE account = $1`)
	if err := h.db.One(h.t.Context(), sum.With(h.account), &quotas, &uncounted); err != nil {
		h.t.Fatal(err)
	}
	return quotas, uncounted
}

// wantSum fails unless the stored sum equals that of the mailboxes.
func (h *fixture) wantSum(when string) {
	h.t.Helper()
	want, _ := h.summed()
	if got, _, err := h.StorageUsage(h.t.Context(), h.account); err != nil || got != want {
		h.t.Errorf("%s the quotas are %d, %v; want %d", when, got, err, want)
	}
}

// insertOld creates a mailbox like a release without stored sums and pieces.
var insertOld = db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, generation, quota, status, created_at, deleted_at)
	VALUES ($1, $2, $3, $4, $5, $6, '', 1, $7, 'active', 0, 0)`)

func (h *fixture) createOld(local, name string, quota int64) db.ID {
	h.t.Helper()
	id := h.db.NewID()
	noUse := db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) VALUES ($1, 0, 0, 0)`)
	dbtest.Exec(h.t, h.db, insertOld.With(id, h.account, h.domain, local, local+"@demo.test", name, quota), noUse.With(id))
	return id
}

var (
	quotaOld   = db.SQL(`UPDATE mailbox SET quota = $2 WHERE id = $1`)
	renameOld  = db.SQL(`UPDATE mailbox SET display_name = $2 WHERE id = $1`)
	deleteOld  = db.SQL(`UPDATE mailbox SET deleted_at = $2, generation = generation + 1 WHERE id = $1`)
	restoreOld = db.SQL(`UPDATE mailbox SET deleted_at = 0, generation = generation + 1 WHERE id = $1`)
	purgeOld   = db.SQL(`DELETE FROM mailbox WHERE id = $1`)
)

// Many goroutines create, change, delete and restore mailboxes of an account, while an older
// release deletes some and reduces quotas. The sum is exact at the end and never exceeds the limit.
func TestQuotasOfMany(t *testing.T) {
	each(t, func(h *fixture) {
		const limit, workers, rounds = 150 * mb, 6, 6
		h.StorageLimit = func(context.Context, db.ID) (int64, error) { return limit, nil }
		for i := range 5 {
			h.createOld(fmt.Sprint("old", i), "", mb)
		}
		old := h.createOld("old", "", 5*mb)
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
		work.Go(func() { expect("count", h.CountRest(ctx)) })
		work.Go(func() {
			for _, s := range []db.Statement{quotaOld.With(old, 3*mb), deleteOld.With(old, 1)} {
				if _, err := h.db.Exec(ctx, s); err != nil {
					t.Error(err)
				}
			}
		})
		work.Wait()
		done.Store(true)
		look.Wait()
		if !refused.Load() {
			t.Error("the limit was never reached")
		}
		h.wantSum("at the end")
		if err := h.CountRest(ctx); err != nil {
			t.Fatal(err)
		}
		if _, uncounted := h.summed(); uncounted > 0 {
			t.Errorf("%d mailboxes are not counted", uncounted)
		}
		h.wantSum("when all are counted")
	})
}

// Changes by a release without stored sums are in the sum immediately, before they are counted and
// after.
func TestQuotasOfOlderRelease(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		kept := h.create("kept", good)
		id := h.createOld("old", "", 7*mb)
		counted := func(when string) {
			t.Helper()
			h.wantSum(when)
			if err := h.CountRest(ctx); err != nil {
				t.Fatal(err)
			}
			h.wantSum(when + ", and was counted,")
		}
		counted("after it made one")
		dbtest.Exec(t, h.db, quotaOld.With(id, 9*mb))
		counted("after it changed one")
		dbtest.Exec(t, h.db, deleteOld.With(kept.ID, 5))
		counted("after it deleted one")
		dbtest.Exec(t, h.db, restoreOld.With(kept.ID))
		counted("after it restored one")
		// The older release runs alone for so long that it purges a mailbox that it deleted.
		dbtest.Exec(t, h.db, deleteOld.With(id, 5), purgeOld.With(id))
		if err := h.Correct(ctx); err != nil {
			t.Fatal(err)
		}
		h.wantSum("after it purged one")

		// This release purges a mailbox that the older release deleted.
		id = h.createOld("another", "", 7*mb)
		counted("after it made another")
		dbtest.Exec(t, h.db, deleteOld.With(id, 5))
		if n, err := h.Purge(ctx); n != 1 || err != nil {
			t.Fatalf("purged %d, %v", n, err)
		}
		h.wantSum("after the purge")
	})
}

// The stored sum of the quotas is read, not summed up again; RunMaintenance corrects a wrong sum.
func TestQuotasAreKept(t *testing.T) {
	each(t, func(h *fixture) {
		h.create("ann", good)
		dbtest.Exec(h.t, h.db, db.SQL(`UPDATE mailbox_storage SET allotted = allotted + 1`).With())
		want, _ := h.summed()
		if got, _, err := h.StorageUsage(h.t.Context(), h.account); err != nil || got != want+1 {
			h.t.Errorf("the quotas are %d, %v; want what is kept, %d", got, err, want+1)
		}
		for range 2 {
			if err := h.Correct(h.t.Context()); err != nil {
				h.t.Fatal(err)
			}
			h.wantSum("corrected")
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
			ids = append(ids, h.createOld(fmt.Sprint("box", len(ids)), "", mb))
		}
		for i := range int64(2) {
			h.deposit(ids[0], 5000, 1)
			if got := used(); got != 5000*(i+1) {
				t.Errorf("%d mailboxes hold %d", len(ids), got)
			}
		}
		ids = append(ids, h.createOld("one-more", "", mb))
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
