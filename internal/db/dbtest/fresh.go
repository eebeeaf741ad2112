// SPDX-License-Identifier: Apache-2.0

package dbtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
)

// SQLite returns the URL of a database file that has the schema and no rows.
func SQLite(t testing.TB) string {
	t.Helper()
	content, err := emptySQLite()
	if err != nil {
		t.Fatal(err)
	}
	u := NoSQLite(t)
	if err := os.WriteFile(strings.TrimPrefix(u, "sqlite:"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return u
}

// NoSQLite returns the URL of a database file that doesn't exist yet.
func NoSQLite(t testing.TB) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "mailstead.db")
}

// emptySQLite returns the content of a database that was just created.
var emptySQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "mailstead-schema")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	path := filepath.Join(dir, "mailstead.db")
	if err := createSchema("sqlite:" + path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func createSchema(u string) error {
	d, err := db.Open(context.Background(), db.Options{URL: u})
	if err != nil {
		return err
	}
	return d.Close()
}

// Postgres returns the URL of a database on the server that has the schema and no rows.
func Postgres(t testing.TB) string {
	t.Helper()
	template, err := postgresTemplate(Server(t))
	if err != nil {
		t.Fatal(err)
	}
	return createDatabase(t, template)
}

// EmptyPostgres returns the URL of a database on the server without tables.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	return createDatabase(t, "template1")
}

func createDatabase(t testing.TB, template string) string {
	t.Helper()
	server, name := Server(t), "t_"+strings.ToLower(rand.Text())
	if err := execAdmin(server, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execAdmin(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u, err := databaseURL(server, name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var templates sync.Map // URL of a server → func() (string, error)

// postgresTemplate returns the name of a database with the schema, of which the server makes copies:
// a copy takes a tenth of the time of the migrations. All processes that test the same schema share
// the template.
func postgresTemplate(server string) (string, error) {
	once, _ := templates.LoadOrStore(server, sync.OnceValues(func() (string, error) {
		name, err := templateName()
		if err != nil {
			return "", err
		}
		return name, createTemplate(server, name)
	}))
	return once.(func() (string, error))()
}

func createTemplate(server, name string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing to lose
	// Other processes wait until this one has created the template.
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtext($1))`, name); err != nil {
		return err
	}
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	unfinished := name + "_unfinished"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + unfinished, "CREATE DATABASE " + unfinished} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	u, err := databaseURL(server, unfinished)
	if err != nil {
		return err
	}
	if err := createSchema(u); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+unfinished+" RENAME TO "+name)
	return err
}

// templateName returns a name that changes with the source of package db, so also with its schema.
func templateName() (string, error) {
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, pattern := range []string{"*.go", "migrations/*.sql"} {
		files, err := filepath.Glob(filepath.Join(root, "internal/db", pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			sum.Write(content)
		}
	}
	return fmt.Sprintf("mailstead_template_%x", sum.Sum(nil)[:8]), nil
}

// databaseURL returns the URL of another database of a server.
func databaseURL(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func execAdmin(server, statement string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing to lose
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
