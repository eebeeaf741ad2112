// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

// A third of the mailboxes are of the first account: 90 in 100 of these in its first
// domain, ten in its second, none in its third.
const (
	largeAccount = 1_000_001
	largeDomain  = 2_000_001
	smallDomain  = 2_000_002
	emptyDomain  = 2_000_003
)

var growthRows = []*db.Query{
	db.SQL(`INSERT INTO account (id, email, name, status, created_at) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < $1)
		SELECT 1000000 + n, 'owner' || n || '@example.com', 'Owner ' || n, 'active', 0 FROM c`),
	db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at, next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < $1 + 2)
		SELECT 2000000 + n, 1000000 + CASE WHEN n < 4 THEN 1 ELSE n - 2 END, 'd' || n || '.load.test', 'verified', TRUE, '', TRUE, TRUE, TRUE, '', 0, 0, 0, 0, 0, 0, 0 FROM c`),
	db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, generation, quota, status, created_at, deleted_at)
		WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < $1),
			placed AS (SELECT n, CASE WHEN n % 3 = 0 THEN 1 ELSE 2 + n % ($2 - 1) END AS a FROM c)
		SELECT 3000000 + n, 1000000 + a, 2000000 + CASE WHEN a > 1 THEN a + 2 WHEN n <= 30 THEN 2 ELSE 1 END,
			'user' || n, 'user' || n || '@d' || CASE WHEN a > 1 THEN a + 2 WHEN n <= 30 THEN 2 ELSE 1 END || '.load.test', 'Person ' || n, '', 1, 1048576, 'active', 0, 0
		FROM placed`),
	db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) SELECT id, 40000, 10, 0 FROM mailbox`),
}

// BenchmarkGrowth measures the median time of operations on the mailboxes of a large account.
func BenchmarkGrowth(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		for _, size := range []int{1_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", engine, size), func(b *testing.B) { benchmarkGrowth(b, open(b), size) })
		}
	}
}

func benchmarkGrowth(b *testing.B, url string, size int) {
	d, node := leasetest.Open(b, url)
	for i, q := range growthRows {
		args := [][]any{{max(10, size/100)}, {max(10, size/100)}, {size, max(10, size/100)}, nil}
		dbtest.Exec(b, d, q.With(args[i]...))
	}
	if d.Engine() == db.Postgres {
		dbtest.Exec(b, d, db.SQL(`ANALYZE`).With())
	}
	hub := &notify.Hub{}
	boxes := mailbox.Open(mailbox.Options{
		DB: d, Hub: hub, Accounts: account.New(d, hub, time.Now), Hasher: credential.NewHasherWithCost(credentialtest.Cost), Now: time.Now, Node: node,
		Events:        &event.Log{DB: d, Hub: hub, Now: time.Now},
		StorageLimit:  func(context.Context, db.ID) (int64, error) { return 1 << 50, nil },
		VerifiedName:  func(context.Context, db.ID, db.ID) (string, error) { return "d1.load.test", nil },
		CreateFolders: func(context.Context, *db.Tx, db.ID) error { return nil },
	})
	begin, before := time.Now(), dataSize(b, d)
	if err := boxes.IndexAll(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Logf("%v and %d bytes for each mailbox from before", time.Since(begin)/time.Duration(size), (dataSize(b, d)-before)/size)
	if d.Engine() == db.Postgres {
		dbtest.Exec(b, d, db.SQL(`ANALYZE`).With())
	}
	list := func(f mailbox.Filter, want int) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			found, _, err := boxes.List(ctx, largeAccount, f, db.Page{})
			if err == nil && len(found) != want {
				err = fmt.Errorf("found %d of %d", len(found), want)
			}
			return err
		}
	}
	made := []db.ID{}
	for _, one := range []struct {
		name string
		do   func(context.Context, int) error
	}{
		{"storage", func(ctx context.Context, _ int) error {
			_, _, err := boxes.StorageUsage(ctx, largeAccount)
			return err
		}},
		{"quota", func(ctx context.Context, i int) error {
			_, err := boxes.Update(ctx, largeAccount, 3_000_003, mailbox.Change{QuotaMB: new(1 + i%10)})
			return err
		}},
		{"create", func(ctx context.Context, i int) error {
			box, _, err := boxes.Create(ctx, largeAccount, mailbox.CreateParams{Domain: largeDomain, LocalPart: fmt.Sprintf("new%d", i), DisplayName: "New Person"})
			made = append(made, box.ID)
			return err
		}},
		{"delete", func(ctx context.Context, i int) error { return boxes.Delete(ctx, largeAccount, made[i]) }},
		{"all", list(mailbox.Filter{}, 50)},
		{"domain", list(mailbox.Filter{Domain: largeDomain}, 50)},
		{"small domain", list(mailbox.Filter{Domain: smallDomain}, 10)},
		{"empty domain", list(mailbox.Filter{Domain: emptyDomain}, 0)},
		{"deleted of empty domain", list(mailbox.Filter{Domain: emptyDomain, Deleted: true}, 0)},
		{"search none", list(mailbox.Filter{Search: "nobody"}, 0)},
		{"search one", list(mailbox.Filter{Search: "user93@"}, 1)},
		{"search many", list(mailbox.Filter{Search: "person"}, 50)},
		{"search two letters", list(mailbox.Filter{Search: "zz"}, 0)},
	} {
		b.Run(one.name, func(b *testing.B) {
			var took []time.Duration
			for i := range 60 {
				begin := time.Now()
				if err := one.do(b.Context(), i); err != nil {
					b.Fatal(err)
				}
				if i >= 10 {
					took = append(took, time.Since(begin))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/p50")
		})
	}
}

// dataSize returns the size of a database in bytes.
func dataSize(b *testing.B, d *db.DB) (size int) {
	b.Helper()
	text := `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`
	if d.Engine() == db.Postgres {
		text = `SELECT CAST(SUM(pg_total_relation_size(c.oid)) AS BIGINT) FROM pg_class c WHERE c.relnamespace = current_schema::regnamespace AND c.relkind = 'r'`
	}
	if err := d.One(b.Context(), db.SQL(text).With(), &size); err != nil {
		b.Fatal(err)
	}
	return size
}
