// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// manyDeliveries creates deliveries of three webhooks, few of which failed: 7, 2007, 4007…
var manyDeliveries = db.SQL(`WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 20000)
	INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, error, body, created_at, updated_at)
	SELECT 1 + i / 18000, i, 'bounce', CASE WHEN i % 2000 = 7 THEN 'failed' WHEN i % 3 = 0 THEN 'pending' ELSE 'delivered' END, 0, 0, 0, 0, '', '', 0, 0 FROM s`)

var manySuppressions = db.SQL(`WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 20000)
	INSERT INTO suppression (id, account, address, scope, reason, message, n, diagnostic, simulated, created_at)
	SELECT i, 1 + i / 18000, 'a' || i, 'all', CASE WHEN i % 2000 = 7 THEN 'complaint' ELSE 'bounce' END, 0, 0, '', FALSE, 0 FROM s`)

var pagedLists = map[string]*db.PagedQuery{
	"clustered": db.PagedSQL(`SELECT id FROM webhook_delivery WHERE {clustered page webhook = $1, state = $4}`),
	"rows":      db.PagedSQL(`SELECT id FROM suppression WHERE {page account = $1, reason = $4}`),
}

// Pages with a filter for rare rows contain exactly these, in both directions.
func TestPaged(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.Exec(t, d, manyDeliveries.With())
		dbtest.Exec(t, d, manySuppressions.With())
		want := []db.ID{16007, 14007, 12007, 10007, 8007, 6007, 4007, 2007, 7}
		scan := func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) }
		for name, q := range pagedLists {
			value := map[string]string{"clustered": "failed", "rows": "complaint"}[name]
			for _, c := range []struct {
				page db.Page
				want []db.ID
				more bool
			}{
				{db.Page{}, want, false},
				{db.Page{Limit: 4}, want[:4], true},
				{db.Page{Limit: 4, After: want[3]}, want[4:8], true},
				{db.Page{Limit: 4, After: want[7]}, want[8:], false},
				{db.Page{Limit: 4, After: 7}, nil, false},
				{db.Page{Limit: 4, Before: want[8]}, want[4:8], true},
				{db.Page{Limit: 4, Before: want[2]}, want[:2], false},
				{db.Page{Limit: 4, Before: 16007}, nil, false},
			} {
				got, more, err := db.ReadPage(t.Context(), d, q, c.page, scan, 1, value)
				if err != nil || more != c.more || !slices.Equal(got, c.want) {
					t.Errorf("%s, %+v: %v, more: %v, %v; want %v", name, c.page, got, more, err, c.want)
				}
			}
		}
	})
}

var buffers = regexp.MustCompile(`Buffers: shared hit=(\d+)`)

// PostgreSQL stops reading a page where the filter's value ends. With a row comparison over several
// columns it would read on to the end of the first column's value.
func TestPagedEnds(t *testing.T) {
	url := dbtest.Postgres(t)
	d := dbtest.Open(t, url)
	dbtest.Exec(t, d, manyDeliveries.With())
	dbtest.Exec(t, d, manySuppressions.With())
	conn := plannerConn(t, url)
	for name, text := range map[string]string{
		"deliveries": `SELECT id FROM webhook_delivery WHERE {clustered page webhook = $1, state = $4}`,
		"entries":    `SELECT id FROM suppression WHERE {page account = $1, reason = $4}`,
	} {
		older, newer := db.PagedSQLTexts(text)
		for i, query := range []string{older, newer} {
			statement := fmt.Sprintf("%s%d", name, i)
			from := []string{"20000", "0"}[i]
			value := map[string]string{"deliveries": "failed", "entries": "complaint"}[name]
			if _, err := conn.PgConn().Exec(t.Context(), "PREPARE "+statement+" AS "+db.Rendered(db.Postgres, query)).ReadAll(); err != nil {
				t.Fatal(err)
			}
			results, err := conn.PgConn().Exec(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) EXECUTE "+statement+"(1, "+from+", 100, '"+value+"')").ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			plan := ""
			for _, row := range results[len(results)-1].Rows {
				plan += string(row[0]) + "\n"
			}
			hit := buffers.FindStringSubmatch(plan)
			if hit == nil {
				t.Fatal(plan)
			}
			if n, _ := strconv.Atoi(hit[1]); n > 60 {
				t.Errorf("%s\n%s", query, plan)
			}
		}
	}
}
