// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

var (
	copyDomain = db.SQL(`WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 49)
		INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records,
			checked_at, next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		SELECT id - i, account, 'd' || i || '.' || name, status, owned, token, receives, sends, aligned, REPLACE(records, name, 'd' || i || '.' || name),
			checked_at, next_check_at, checks, mismatch_since, contested_since, verified_at, created_at FROM domain, s`)
	copyKeys = db.SQL(`WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 49)
		INSERT INTO dkim_key (id, domain, selector, algorithm, private_key, record, seen, state, imported, created_at)
		SELECT id - 1000 * i, domain - i, selector, algorithm, private_key, record, seen, state, imported, created_at FROM dkim_key, s`)
)

func BenchmarkList(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			d, _ := leasetest.Open(b, url(b))
			w := open(b, d)
			account := w.account("list")
			dom := w.create(account, "example.net")
			w.publish(dom)
			w.check(dom)
			for _, q := range []*db.Query{copyDomain, copyKeys} {
				if _, err := d.Exec(b.Context(), q.With()); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				list, _, err := w.List(b.Context(), account, db.Page{})
				if err != nil || len(list) != 50 {
					b.Fatal(len(list), err)
				}
			}
		})
	}
}
