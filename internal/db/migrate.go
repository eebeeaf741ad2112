// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date. Any node runs a migration, once:
// PostgreSQL's session lock and SQLite's single writer see to it. Migrations
// expand first and contract a release later, so that the binary one release
// back still runs on the newer schema.
func migrate(ctx context.Context, e Engine, conn *sql.DB) error {
	texts, err := rendered(e)
	if err != nil {
		return err
	}
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithTableName("schema_version")}
	if e == Postgres {
		dialect, options = goose.DialectPostgres, append(options, goose.WithSessionLocker(turns{}))
	}
	p, err := goose.NewProvider(dialect, conn, texts, options...)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return nil
}

// turns lets nodes that start together migrate one after the other; unlike
// goose's own locker it waits without polling.
type turns struct{}

const turn = `(hashtext('mailstead migration ' || current_schema()))`

// SessionLock waits for this node's turn, as long as others migrate: that may be
// longer than a session waits for a lock.
func (turns) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range []string{`SET lock_timeout = 0`, `SELECT pg_advisory_lock` + turn, `RESET lock_timeout`} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// SessionUnlock lets the next one in.
func (turns) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock`+turn)
	return err
}

// rendered returns the migrations with their fragments in the engine's words.
func rendered(e Engine) (fs.FS, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	texts := fstest.MapFS{}
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[name[len("migrations/"):]] = &fstest.MapFile{Data: []byte(render(e, string(text)))}
	}
	return texts, nil
}
