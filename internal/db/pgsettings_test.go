// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"crypto/rand"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// database creates a database with its own settings on the tests' server, and returns its URL.
func database(t *testing.T, settings ...string) string {
	t.Helper()
	u, err := url.Parse(dbtest.Server(t))
	if err != nil {
		t.Fatal(err)
	}
	admin, name := connect(t, u.String()), "t_"+strings.ToLower(rand.Text())
	exec(t, admin, "CREATE DATABASE "+name+" "+settings[0]+" TEMPLATE template0")
	t.Cleanup(func() { exec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	for _, setting := range settings[1:] {
		exec(t, admin, "ALTER DATABASE "+name+" SET "+setting)
	}
	u.Path = "/" + name
	return u.String()
}

// A database that can't store every text is rejected before anything is written to it.
func TestUnsuitedDatabase(t *testing.T) {
	ctx, latin, from := t.Context(), database(t, `ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`), dbtest.SQLite(t)
	_, open := db.Open(ctx, db.Options{URL: latin})
	_, look := db.OpenInspector(ctx, db.InspectOptions{URL: latin})
	dbtest.Open(t, from)
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := db.Snapshot(ctx, from, copied); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"open": open, "look": look, "load": db.CopyToPostgres(ctx, copied, latin)} {
		if err == nil || !strings.Contains(err.Error(), "as LATIN1: make another by CREATE DATABASE") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The server's defaults for all sessions don't apply to the service's own.
func TestSettingsOfOthers(t *testing.T) {
	hasty := database(t, "", "statement_timeout = 1", "default_transaction_isolation = serializable", "synchronous_commit = off")
	d, err := db.Open(t.Context(), db.Options{URL: hasty})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	var isolation, commit string
	err = d.One(t.Context(), ours.With(), &isolation, &commit)
	if err != nil || isolation != "read committed" || commit != "on" {
		t.Errorf("%s, %s, %v", isolation, commit, err)
	}
}

var ours = db.SQL(`SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')`)

// The error of a server that is too old to know a setting.
func TestOldServer(t *testing.T) {
	err := db.Refusal(&pgconn.PgError{Code: "42704", Message: `unrecognized configuration parameter "idle_session_timeout"`})
	if !strings.Contains(err.Error(), "PostgreSQL 14 or a newer one") {
		t.Error(err)
	}
}

// Every index compares texts byte by byte, in a database of any locale: the rules of locales change
// with the system's upgrades.
func TestIndexesInByteOrder(t *testing.T) {
	u := dbtest.Postgres(t)
	dbtest.Open(t, u)
	rows, err := connect(t, u).Query(t.Context(), `SELECT c.relname || '.' || a.attname
		FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
			JOIN pg_attribute a ON a.attrelid = i.indexrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND a.attcollation NOT IN (0, '"C"'::regcollation)`)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(wrong) > 0 {
		t.Errorf("in the order of some language, for want of {text} in the migration: %v, %v", wrong, err)
	}
}
