// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrate brings the schema up to date. Each migration runs once, on any node: PostgreSQL's
// session lock and SQLite's single writer ensure that. Migrations expand first and contract a
// release later, so that the previous release's binary still runs on the newer schema.
func migrate(ctx context.Context, e Engine, conn *sql.DB, log *slog.Logger) error {
	texts, err := renderMigrations(e)
	if err != nil {
		return err
	}
	return applyMigrations(ctx, e, conn, log, texts)
}

func applyMigrations(ctx context.Context, e Engine, conn *sql.DB, log *slog.Logger, texts fs.FS) error {
	p, err := newMigrator(e, conn, texts)
	if err != nil {
		return err
	}
	for {
		switch _, err := p.Up(ctx); {
		case err == nil:
			return nil
		case ctx.Err() == nil && (sqlState(err) == "55P03" || sqlState(err) == "40P01"):
			log.Warn("the database can't be migrated while others use its tables, such as a backup; trying again", "error", err)
			sleep(ctx, migrationRetryDelay)
		default:
			return fmt.Errorf("migrating the database: %w", err)
		}
	}
}

// migrateTo creates the schema of a version in an empty database.
func migrateTo(ctx context.Context, e Engine, conn *sql.DB, version int64) error {
	texts, err := renderMigrations(e)
	if err != nil {
		return err
	}
	p, err := newMigrator(e, conn, texts)
	if err != nil {
		return err
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; version > newest {
		return fmt.Errorf("the database is of a newer release (schema %d) than this program (%d); use that one's program", version, newest)
	}
	if _, err := p.UpTo(ctx, version); err != nil {
		return fmt.Errorf("making the schema: %w", err)
	}
	return nil
}

func newMigrator(e Engine, conn *sql.DB, texts fs.FS) (*goose.Provider, error) {
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithTableName("schema_migration")}
	if e == Postgres {
		dialect, options = goose.DialectPostgres, append(options, goose.WithSessionLocker(migrationLocker{}))
	}
	p, err := goose.NewProvider(dialect, conn, texts, options...)
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	return p, nil
}

// migrationLocker lets nodes that start together migrate one after the other; unlike
// goose's own locker it waits without polling.
type migrationLocker struct{}

// A migration waits at most migrationLockTimeout for a table that others use, then retries
// after migrationRetryDelay: everyone who needs the table queues behind it. The timeout is less
// than PostgreSQL's deadlock_timeout, so that none of them becomes a deadlock's victim.
const (
	migrationLockTimeout = 500 * time.Millisecond
	migrationRetryDelay  = 2 * time.Second
)

const migrationLockKey = `(hashtext('mailstead migration ' || current_schema()))`

// SessionLock waits while other nodes migrate. That may take longer than a session's
// lock_timeout.
func (migrationLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	patience := fmt.Sprintf(`SET lock_timeout = %d`, migrationLockTimeout.Milliseconds())
	for _, statement := range []string{`SET lock_timeout = 0`, `SELECT pg_advisory_lock` + migrationLockKey, patience} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// SessionUnlock lets the next node migrate.
func (migrationLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock`+migrationLockKey)
	return err
}

// renderMigrations returns the migrations with the engine's text for each fragment.
func renderMigrations(e Engine) (fs.FS, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	texts := fstest.MapFS{}
	for _, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[name[len("migrations/"):]] = &fstest.MapFile{Data: []byte(renderSQL(e, string(text)))}
	}
	return texts, nil
}
