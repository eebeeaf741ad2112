// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"crypto/rand"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A database that can't hold every text is refused before anything is in it.
func TestUnsuitedDatabase(t *testing.T) {
	ctx := t.Context()
	u, err := url.Parse(os.Getenv("MAILSTEAD_TEST_POSTGRES"))
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, u.String())
	name := "latin_" + strings.ToLower(rand.Text())
	exec(t, admin, `CREATE DATABASE `+name+` ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	t.Cleanup(func() { exec(t, admin, "DROP DATABASE "+name) })
	u.Path = "/" + name
	_, open := db.Open(ctx, db.Options{URL: u.String()})
	_, look := db.OpenLook(ctx, db.LookOptions{URL: u.String()})
	copied := filepath.Join(t.TempDir(), "copy.db")
	from := dbtest.SQLite(t)
	dbtest.Open(t, from)
	if err := db.Snapshot(ctx, from, copied); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"open": open, "look": look, "load": db.Load(ctx, copied, u.String())} {
		if err == nil || !strings.Contains(err.Error(), "as LATIN1: make another by CREATE DATABASE") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a server sets for all sessions, to suit other programs, does not bind ours.
func TestSettingsOfOthers(t *testing.T) {
	u, err := url.Parse(os.Getenv("MAILSTEAD_TEST_POSTGRES"))
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, u.String())
	name := "hasty_" + strings.ToLower(rand.Text())
	exec(t, admin, `CREATE DATABASE `+name+` TEMPLATE template0`)
	t.Cleanup(func() { exec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	for _, setting := range []string{"statement_timeout = 1", "default_transaction_isolation = serializable", "synchronous_commit = off"} {
		exec(t, admin, "ALTER DATABASE "+name+" SET "+setting)
	}
	u.Path = "/" + name
	d, err := db.Open(t.Context(), db.Options{URL: u.String()})
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

func TestSuits(t *testing.T) {
	for _, c := range []struct {
		version, encoding string
		suits             bool
	}{
		{"15.18 (Debian 15.18-0+deb12u1)", "UTF8", true},
		{"14.1", "UTF8", true},
		{"19beta1", "UTF8", true},
		{"13.23", "UTF8", false},
		{"9.6.24", "UTF8", false},
		{"15.18", "SQL_ASCII", false},
		{"", "", true}, // of a server that says neither
	} {
		if err := db.Suits(c.version, c.encoding); (err == nil) != c.suits {
			t.Errorf("%s, %s: %v", c.version, c.encoding, err)
		}
	}
}

// Every index compares texts byte by byte, whatever language the database was made
// for: what the system thinks of a language changes with its upgrades.
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
