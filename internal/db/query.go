// SPDX-License-Identifier: Apache-2.0

package db

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Query is one SQL text that serves both engines. Queries are package-level
// values made with SQL, so that a test can read every one of them from the
// source and run EXPLAIN on both engines.
type Query struct {
	sqlite, postgres string
	readOnly         bool // whether it is a plain SELECT, which changes nothing
	// multiRow holds PostgreSQL's texts of a plain INSERT for one, two, four and eight rows;
	// empty for any other query.
	multiRow []string
}

// SQL makes a query from one text with $1…$n placeholders. Where the engines' syntax differs,
// the text holds a fragment: {blob}, {id}, {text}, {clustered}, {hot}, {skip_locked},
// {for_update}, {lock}, {now} (see fragments). A line that begins with {postgres} is only for
// PostgreSQL, one with {sqlite} only for SQLite.
func SQL(text string) *Query {
	q := &Query{
		sqlite:   renderSQL(SQLite, text),
		postgres: renderSQL(Postgres, text),
		readOnly: !writePattern.MatchString(text),
	}
	if at := insertPattern.FindStringSubmatchIndex(q.postgres); at != nil {
		for n := 1; n <= maxInsertRows; n *= 2 {
			q.multiRow = append(q.multiRow, q.postgres[:at[2]]+repeatRow(q.postgres[at[2]:], n))
		}
	}
	return q
}

// writePattern matches statements that change something; FOR UPDATE does not.
var writePattern = regexp.MustCompile(`(?m)(^|[^R]\s|\()(INSERT|UPDATE|DELETE|BEGIN|COMMIT|ROLLBACK)\b`)

// insertPattern matches an INSERT of one row of arguments, numbers and texts, with nothing after
// it.
var insertPattern = regexp.MustCompile(`^INSERT INTO \w+ \([^()]*\)\s+VALUES (\((?:(?:\$?\d+|'[^'$]*')(?:, )?)+\))$`)

// maxInsertRows is the maximum number of rows in a combined INSERT. Every connection prepares a
// separate statement for each number of rows.
const maxInsertRows = 8

// repeatRow repeats a row n times, with consecutive arguments.
func repeatRow(row string, n int) string {
	parts := strings.Split(row, "$")
	ends, numbers, args := make([]string, len(parts)), make([]int, len(parts)), 0
	for i, part := range parts[1:] {
		rest := strings.TrimLeft(part, "0123456789")
		number, _ := strconv.Atoi(part[:len(part)-len(rest)])
		numbers[i+1], ends[i+1] = number, rest
		args = max(args, number)
	}
	var text strings.Builder
	for at := range n {
		if at > 0 {
			text.WriteString(", ")
		}
		text.WriteString(parts[0])
		for i, number := range numbers[1:] {
			text.WriteString("$" + strconv.Itoa(at*args+number) + ends[i+1])
		}
	}
	return text.String()
}

// With binds arguments and returns a statement that can be run. Times are passed as microseconds
// (Micros), ids as ID.
func (q *Query) With(args ...any) Statement { return Statement{query: q, args: args} }

// name returns the beginning of the text, for logs and errors.
func (q *Query) name() string {
	text := strings.Join(strings.Fields(q.sqlite), " ")
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return text
}

// wrapQueryError adds to err which statement failed, without its arguments.
func wrapQueryError(q *Query, err error) error { return fmt.Errorf("%s: %w", q.name(), err) }

// Statement is a query with its arguments.
type Statement struct {
	query *Query
	args  []any
}

// fragments maps each fragment to the text for each engine.
var fragments = [2]*strings.Replacer{
	SQLite: strings.NewReplacer(
		"{blob}", "BLOB",
		"{id}", "INTEGER PRIMARY KEY",
		"{text}", "TEXT",
		"{clustered}", "WITHOUT ROWID",
		"{hot}", "",
		"{sqlite}", "",
		"{postgres}", "--",
		"{skip_locked}", "",
		"{for_update}", "",
		"{lock}", "TYPEOF", // harmless: SQLite needs no lock
		"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
	),
	Postgres: strings.NewReplacer(
		"{blob}", "BYTEA",
		"{id}", "BIGINT PRIMARY KEY",
		"{text}", `TEXT COLLATE "C"`,
		"{clustered}", "",
		"{hot}", "WITH (fillfactor = 50)",
		"{sqlite}", "--",
		"{postgres}", "",
		"{skip_locked}", "FOR UPDATE SKIP LOCKED",
		"{for_update}", "FOR UPDATE",
		"{lock}", "pg_advisory_xact_lock",
		"{now}", "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT",
	),
}

func renderSQL(e Engine, text string) string { return fragments[e].Replace(text) }
