// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// byIndex lists queries about the mailboxes of an account, by a part of their text, with the index
// that finds exactly the rows that they need.
var byIndex = map[string]string{
	"WHERE \n{postgres}account = $1 AND (deleted_at, id)":                            "mailbox_account_live",
	"= $1 AND \n{postgres}domain = $4 AND (deleted_at, id)":                          "mailbox_domain_live",
	"WHERE deleted_at > 0 AND +deleted_at > $4 AND \n{postgres}(account, id)":        "mailbox_account_deleted",
	"AND deleted_at > 0 AND +deleted_at > $4 AND \n{postgres}(domain, id)":           "mailbox_domain_deleted",
	"FROM mailbox\n\t\tWHERE (domain, deleted_at) >= ($1, 0)":                        "mailbox_domain_live",
	"WHERE (m.account, m.deleted_at) >= ($1, 0)":                                     "mailbox_account_live",
	"FROM alias WHERE \n{postgres}(account, id)":                                     "alias_account",
	"FROM domain d WHERE d.id = $4) = $1 AND \n{postgres}(domain, id)":               "alias_domain",
	"SELECT COUNT(*) FROM (SELECT mailbox FROM mailbox_piece WHERE account = $1 AND": "mailbox_piece",
	"FROM (SELECT mailbox FROM mailbox_piece WHERE account = $1 AND piece >= $2":     "mailbox_piece",
}

// largeAccount creates three accounts. One has nearly all mailboxes, half of them deleted.
var largeAccount = []*db.Query{
	db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES (1, 'a@a', '', 'active', 0), (2, 'b@b', '', 'active', 0), (3, 'c@c', '', 'active', 0)`),
	db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at, next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20)
		SELECT n, 1 + n % 3, 'd' || n, 'verified', TRUE, '', TRUE, TRUE, TRUE, '', 0, 0, 0, 0, 0, 0, 0 FROM c`),
	db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, generation, quota, status, created_at, deleted_at)
		WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20000)
		SELECT n, CASE WHEN n < 10 THEN 2 ELSE 1 END, 1 + n % 20, 'u' || n, 'u' || n || '@d', 'Person', '', 1, 1, 'active', 0, n % 2 FROM c`),
	db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) SELECT id, 0, 0, 0 FROM mailbox`),
	db.SQL(`INSERT INTO alias (id, account, domain, local_part, address, created_at, updated_at)
		SELECT id, account, domain, 'a' || id, 'a' || id, 0, 0 FROM mailbox WHERE id < 5000`),
	db.SQL(`INSERT INTO mailbox_piece (account, piece, mailbox) SELECT account, local_part, id FROM mailbox`),
}

// Lists, searches and sums of mailboxes and aliases use the index for their filter: without
// statistics, with statistics of empty tables, and with current ones.
func TestListsOfMailboxes(t *testing.T) {
	var about []namedQuery
	for _, q := range projectQueries(t) {
		if strings.HasPrefix(q.where, "internal/mailbox/") && indexFor(q.text) != "" {
			about = append(about, q)
		}
	}
	if len(about) < len(byIndex) {
		t.Fatalf("there are %d such queries", len(about))
	}
	check := func(t *testing.T, when string, plan func(text string) (string, error)) {
		t.Helper()
		for _, q := range about {
			got, err := plan(q.text)
			if err != nil {
				t.Fatal(err)
			}
			if index := indexFor(q.text); !strings.Contains(got, index) && !strings.Contains(got, "SEARCH "+index+" USING PRIMARY KEY") {
				t.Errorf("%s: not by %s\n%s\n%s", when, index, q.text, got)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		url := dbtest.SQLite(t)
		d := dbtest.Open(t, url)
		conn := sqliteConn(t, url)
		plan := func(text string) (string, error) {
			lines, err := sqlitePlan(conn, text)
			return strings.Join(lines, "\n"), err
		}
		check(t, "empty", plan)
		for _, q := range largeAccount {
			dbtest.Exec(t, d, q.With())
		}
		check(t, "filled", plan)
		conn.SetMaxOpenConns(1)
		if _, err := conn.Exec(`ANALYZE`); err != nil {
			t.Fatal(err)
		}
		check(t, "analysed", plan)
	})
	t.Run("postgres", func(t *testing.T) {
		url := dbtest.Postgres(t)
		d := dbtest.Open(t, url)
		conn := plannerConn(t, url)
		n := 0
		plan := func(text string) (string, error) {
			n++
			return postgresPlan(t.Context(), conn, n, text)
		}
		run := func(text string) {
			t.Helper()
			if _, err := conn.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		check(t, "empty", plan)
		run(`ANALYZE`)
		for _, q := range largeAccount {
			dbtest.Exec(t, d, q.With())
		}
		check(t, "filled", plan)
		run(`ANALYZE`)
		check(t, "analysed", plan)
	})
}

func indexFor(text string) string {
	for has, index := range byIndex {
		if strings.Contains(text, has) {
			return index
		}
	}
	return ""
}
