// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// walks lists queries that filter rows after reading them, by a part of their text, with the
// reason.
var walks = map[string]string{
	"FROM captured_message\n":                               "an account has at most 1,000 captured messages",
	"FROM found\n\t\tWHERE ($5":                             "an address has at most two entries",
	"WITH waiting AS (":                                     "at most 10,000 rows are read, whatever is in them",
	"($2 AS BIGINT) = 0 OR":                                 "a message has few answers",
	"($3 AS BIGINT) = 0 OR":                                 "a conversation is of one domain, but for a few",
	"outbound_message WHERE account = $1 AND id > $2":       "with bounds at both ends PostgreSQL would read on beyond the second bound of rows",
	"PARTITION BY account + 0":                              "all that are due are put in turns",
	"FROM folder_change\n":                                  "the log of a folder is bounded, and each kind of its changes frequent",
	"AND t.mailbox = $3":                                    "one alias is found by its address",
	"WHERE f.message = m.id AND (CAST(":                     "a message is in few folders",
	"FROM migration WHERE lease IS NOT NULL AND lease = $1": "few migrations run at once",
	"FROM message m WHERE account = $1":                     "most messages are received ones",
	"WHERE m.mailbox = $1 AND m.id > $2":                    "what is not indexed yet is little",
}

// Each filter of each list is a condition of the index that reads the list. That must hold without
// statistics, and with statistics in which all rows belong to one account and have the same value.
// The latter is the case of a filter for a rare value.
func TestFilters(t *testing.T) {
	var lists []namedQuery
	for _, q := range projectQueries(t) {
		if strings.Contains(q.text, "LIMIT") && !writing.MatchString(q.text) && !strings.Contains(q.text, "{skip_locked}") {
			lists = append(lists, q)
		}
	}
	if len(lists) < 40 {
		t.Fatalf("found %d lists only", len(lists))
	}
	excepted := map[string]bool{}
	check := func(t *testing.T, q namedQuery, missed []string, plan string) {
		t.Helper()
		if len(missed) == 0 {
			return
		}
		for part := range walks {
			if strings.Contains(q.text, part) {
				excepted[part] = true
				return
			}
		}
		t.Errorf("%s: no index is read by %s\n%s\n%s", q.where, strings.Join(missed, ", "), q.text, plan)
	}
	t.Run("sqlite", func(t *testing.T) {
		url := dbtest.SQLite(t)
		dbtest.Open(t, url)
		conn := sqliteConn(t, url)
		conn.SetMaxOpenConns(1)
		run := func(t *testing.T) {
			for _, q := range lists {
				plan, err := sqlitePlan(conn, q.text)
				if err != nil {
					t.Fatalf("%s: %v\n%s", q.where, err, q.text)
				}
				check(t, q, missedBySQLite(db.Rendered(db.SQLite, q.text), plan), strings.Join(plan, "\n"))
			}
		}
		t.Run("empty", run)
		for _, s := range append([]string{`PRAGMA ignore_check_constraints = ON`}, append(oneOfAll(t, conn), `ANALYZE`)...) {
			if _, err := conn.Exec(db.Rendered(db.SQLite, s)); err != nil {
				t.Fatalf("%v\n%s", err, s)
			}
		}
		if err := conn.Close(); err != nil { // SQLite reads ANALYZE's statistics when it opens a file
			t.Fatal(err)
		}
		conn = sqliteConn(t, url)
		t.Run("full", run)
	})
	t.Run("postgres", func(t *testing.T) {
		file := dbtest.SQLite(t)
		dbtest.Open(t, file)
		schema := sqliteConn(t, file)
		url := dbtest.Postgres(t)
		dbtest.Open(t, url)
		conn := plannerConn(t, url)
		n := 0
		run := func(t *testing.T) {
			for _, q := range lists {
				n++
				plan, err := postgresPlan(t.Context(), conn, n, q.text)
				if err != nil {
					t.Fatalf("%s: %v\n%s", q.where, err, q.text)
				}
				check(t, q, missedByPostgres(plan), plan)
			}
		}
		t.Run("empty", run)
		prepare := []string{`SET session_replication_role = replica`, `DO $$ DECLARE c record; BEGIN
			FOR c IN SELECT conrelid::regclass AS tab, conname FROM pg_constraint WHERE contype = 'c' AND connamespace = current_schema()::regnamespace
			LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.tab, c.conname); END LOOP; END $$`,
			// Only this test decides when there are statistics.
			`DO $$ DECLARE c record; BEGIN FOR c IN SELECT oid::regclass AS tab FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
			LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', c.tab); END LOOP; END $$`}
		exec := func(statements ...string) {
			for _, s := range statements {
				if _, err := conn.Exec(t.Context(), db.Rendered(db.Postgres, s)); err != nil {
					t.Fatalf("%v\n%s", err, s)
				}
			}
		}
		exec(append(append(prepare, oneOfAll(t, schema)...), `DISCARD PLANS`)...)
		t.Run("full", run)
		exec(`ANALYZE`, `DISCARD PLANS`)
		t.Run("analysed", run)
	})
	dbtest.Server(t) // an exception may be for PostgreSQL alone
	for part := range walks {
		if !excepted[part] {
			t.Errorf("%q needs no exception", part)
		}
	}
}

// owners lists the columns that group many rows.
var owners = []string{"account", "mailbox", "folder", "webhook", "domain", "lease", "state", "algorithm", "kind"}

// manyValued lists columns, other than keys, whose values are nearly unique.
var manyValued = []string{"thread_id", "reference", "message_id"}

// likely lists the values of most rows: those with partial indexes.
var likely = map[string]string{
	"delivery.state": "'queued'", "webhook_delivery.state": "'pending'", "webhook.status": "'enabled'", "mailbox.deleted_at": "i % 2",
}

// oneOfAll returns statements that fill each table with rows of one owner. The rows only differ in
// their keys and times.
func oneOfAll(t *testing.T, schema *sql.DB) (statements []string) {
	t.Helper()
	for _, table := range column(t, schema, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'schema_migration%'`) {
		if slices.Contains(small, table) || table == "webhook_position" {
			continue
		}
		key := map[string]bool{}
		if of := column(t, schema, `SELECT name FROM pragma_table_info('`+table+`') WHERE pk > 0`); len(of) == 1 {
			key[of[0]] = true
		}
		for _, index := range column(t, schema, `SELECT name FROM pragma_index_list('`+table+`') WHERE "unique" = 1`) {
			of := column(t, schema, `SELECT name FROM pragma_index_info('`+index+`') ORDER BY seqno`)
			at := slices.IndexFunc(of, func(c string) bool { return !slices.Contains(owners, c) })
			key[of[max(at, 0)]] = true
		}
		names := column(t, schema, `SELECT name FROM pragma_table_info('`+table+`')`)
		types := column(t, schema, `SELECT type FROM pragma_table_info('`+table+`')`)
		optional := column(t, schema, `SELECT "notnull" OR pk FROM pragma_table_info('`+table+`')`)
		values := make([]string, len(names))
		for i, name := range names {
			if value, ok := likely[table+"."+name]; ok {
				values[i] = value
				continue
			}
			own := key[name] || slices.Contains(manyValued, name) || name == "id" || name == "position" || strings.HasSuffix(name, "_at") && name != "deleted_at"
			switch {
			case optional[i] == "0" && !own:
				values[i] = "NULL"
			case types[i] == "BOOLEAN":
				values[i] = "TRUE"
			case types[i] == "BLOB" && own:
				values[i] = "CAST('x' || i AS {blob})"
			case types[i] == "BLOB":
				values[i] = "CAST('x' AS {blob})"
			case types[i] == "TEXT" && own:
				values[i] = "'x' || i"
			case types[i] == "TEXT":
				values[i] = "'x'"
			case own:
				values[i] = "i"
			default:
				values[i] = "1"
			}
		}
		statements = append(statements, fmt.Sprintf(`DELETE FROM %s`, table), fmt.Sprintf(`WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3000)
			INSERT INTO %s (%s) SELECT %s FROM s`, table, strings.Join(names, ", "), strings.Join(values, ", ")))
	}
	return statements
}

func column(t *testing.T, conn *sql.DB, query string) (values []string) {
	t.Helper()
	rows, err := conn.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	if err := errorsOf(rows); err != nil {
		t.Fatal(err)
	}
	return values
}

var (
	writing = regexp.MustCompile(`\b(INSERT INTO|UPDATE \w+\s+(SET|AS)|DELETE FROM)\b`)
	// A plus before or after a column keeps SQLite from using its index.
	compared   = regexp.MustCompile(`(\+(?:\w+\.)?)?\b([a-z_]+) (?:[<>]?=|LIKE) \$\d`)
	bounded    = regexp.MustCompile(`\(([a-z_., ]+)\) [<>]=? \(\$\d`)
	searched   = regexp.MustCompile(`^SEARCH .*?\(([^ ].*)\)$`)
	filterLine = regexp.MustCompile(`(?m)^ *(?:Join )?Filter: (.*)$`)
	tested     = regexp.MustCompile(`(\+ )?"?\b([a-z_]+)"?\)? (?:[<>]?=|~~) (?:like_escape\()?\$\d`)
	rowTested  = regexp.MustCompile(`ROW\([a-z_., "]+\) [<>]=? ROW`)
)

// missedBySQLite returns the columns that a query compares with an argument and that no
// index is searched by.
func missedBySQLite(text string, plan []string) (missed []string) {
	var by []string
	for _, line := range plan {
		if m := searched.FindStringSubmatch(line); m != nil {
			by = append(by, strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune("()=<>?, ", r) })...)
		}
	}
	look := func(name string) {
		name = name[strings.LastIndexByte(name, '.')+1:]
		if !slices.Contains(by, name) && !(name == "id" && slices.Contains(by, "rowid")) && !slices.Contains(missed, name) {
			missed = append(missed, name)
		}
	}
	for _, m := range compared.FindAllStringSubmatch(text, -1) {
		if m[1] == "" {
			look(m[2])
		}
	}
	for _, m := range bounded.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			look(name)
		}
	}
	return missed
}

// missedByPostgres returns the columns that PostgreSQL filters by after reading the rows.
func missedByPostgres(plan string) (missed []string) {
	for _, line := range filterLine.FindAllStringSubmatch(plan, -1) {
		for _, m := range tested.FindAllStringSubmatch(line[1], -1) {
			if m[1] == "" {
				missed = append(missed, m[2])
			}
		}
		missed = append(missed, rowTested.FindAllString(line[1], -1)...)
	}
	return missed
}
