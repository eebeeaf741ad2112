// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Inspector reads a database without changing it, whether or not a service is running: it
// doesn't migrate, creates no files, and can't write.
type Inspector struct {
	kind     Engine
	sqlite   *sql.DB // for SQLite
	path     string
	postgres *pgxpool.Pool // for PostgreSQL
	name     string
}

// InspectOptions are the options of OpenInspector.
type InspectOptions struct {
	// URL is "sqlite:PATH" of the database file or "postgres://…".
	URL string
	// Offline says that no service is using the SQLite file. The inspector then reads a log
	// that a crash left without changing the log's index.
	Offline bool
}

// inspectorConns is the maximum number of connections of an inspector. It is low so that an
// inspector can connect to a PostgreSQL server that has few left.
const inspectorConns = 2

// OpenInspector opens a database for inspection. It returns fs.ErrNotExist if the SQLite file
// does not exist.
func OpenInspector(ctx context.Context, o InspectOptions) (*Inspector, error) {
	if path, isFile := strings.CutPrefix(o.URL, "sqlite:"); isFile {
		return inspectSQLite(ctx, path, o.Offline)
	}
	return inspectPostgres(ctx, o.URL)
}

func inspectSQLite(ctx context.Context, path string, alone bool) (*Inspector, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	v := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(2000)", "query_only(1)", "temp_store(2)"}}
	log, err := os.Stat(path + "-wal")
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && alone && log.Size() == 0:
		// SQLite creates the log and its index when it opens a WAL database, even for
		// reading, unless it knows that nobody writes. Without a log nobody does.
		v.Set("immutable", "1")
	case alone:
		// The log is read, but its index stays unchanged: SQLite builds another one in
		// memory.
		v.Set("readonly_shm", "1")
		if _, err := os.Stat(path + "-shm"); err != nil {
			return nil, fmt.Errorf("there is a log (%s-wal) without its index, as of a copy that was made while the service ran", path)
		}
	}
	file, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+v.Encode())
	if err != nil {
		return nil, err
	}
	file.SetMaxOpenConns(inspectorConns)
	l := &Inspector{kind: SQLite, sqlite: file, path: path, name: path}
	var pages int64
	if err := file.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		var se *sqlite.Error
		if alone && errors.As(err, &se) && se.Code() == sqlite3.SQLITE_READONLY_CANTINIT {
			_ = file.Close()
			return inspectSQLite(ctx, path, false) // another container has it open
		}
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

func inspectPostgres(ctx context.Context, url string) (*Inspector, error) {
	cfg, err := parsePostgres(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = inspectorConns, 0, 0
	cfg.AfterConnect = checkSession
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l := &Inspector{kind: Postgres, postgres: pool}
	l.name = fmt.Sprintf("%s on %s", cfg.ConnConfig.Database, cfg.ConnConfig.Host)
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, explainConnectError(err)
	}
	return l, nil
}

// Close closes the inspector's connections.
func (l *Inspector) Close() error {
	if l.kind == Postgres {
		l.postgres.Close()
		return nil
	}
	return l.sqlite.Close()
}

// Engine returns the database's engine.
func (l *Inspector) Engine() Engine { return l.kind }

// Name returns the database's name for messages, without a password.
func (l *Inspector) Name() string { return l.name }

// Each calls f for every row that s returns.
func (l *Inspector) Each(ctx context.Context, s Statement, f func(Row) error) error {
	if l.kind == Postgres {
		rows, err := l.postgres.Query(ctx, s.query.postgres, s.args...)
		if err == nil {
			_, err = eachPgRow(rows, f)
		}
		return wrapReadError(s.query, err)
	}
	rows, err := l.sqlite.QueryContext(ctx, s.query.sqlite, s.args...)
	if err == nil {
		_, err = readRows(rows, f)
	}
	return wrapReadError(s.query, err)
}

func wrapReadError(q *Query, err error) error {
	if err == nil || errors.Is(err, errStop) {
		return err
	}
	return wrapQueryError(q, err)
}

// One scans the first row that s returns, or returns ErrNoRow.
func (l *Inspector) One(ctx context.Context, s Statement, dst ...any) error {
	return scanOne(func(f func(Row) error) error { return l.Each(ctx, s, f) }, dst)
}

// SchemaState compares a database's schema with this program's.
type SchemaState struct {
	Version int64 // newest migration of the database; 0 if it is empty
	Latest  int64 // newest migration of this program
	Missing int   // number of this program's migrations that the database lacks
}

var appliedMigrationsQuery = SQL(`SELECT version_id FROM schema_migration WHERE id > 0 AND version_id > 0 ORDER BY id LIMIT 10000`)

// Schema compares the schema with this program's.
func (l *Inspector) Schema(ctx context.Context) (s SchemaState, err error) {
	missing := map[int64]bool{}
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return s, err
	}
	for _, name := range names {
		var version int64
		if _, err := fmt.Sscanf(name, "migrations/%d_", &version); err != nil {
			return s, err
		}
		missing[version], s.Latest = true, max(s.Latest, version)
	}
	there, err := l.hasSchema(ctx)
	if err == nil && there {
		err = l.Each(ctx, appliedMigrationsQuery.With(), func(r Row) error {
			var version int64
			err := r.Scan(&version)
			s.Version = max(s.Version, version)
			delete(missing, version)
			return err
		})
	}
	s.Missing = len(missing)
	return s, err
}

// hasSchema reports whether any migration has run.
func (l *Inspector) hasSchema(ctx context.Context) (there bool, err error) {
	if l.kind == Postgres {
		err = l.postgres.QueryRow(ctx, `SELECT to_regclass('schema_migration') IS NOT NULL`).Scan(&there)
		return there, err
	}
	err = l.sqlite.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migration'`).Scan(&there)
	return there, err
}

var nowQuery = SQL(`SELECT {now}`)

// Now returns the time of the database's clock: on SQLite that of this machine.
func (l *Inspector) Now(ctx context.Context) (time.Time, error) {
	var micros int64
	err := l.One(ctx, nowQuery.With(), &micros)
	return Time(micros), err
}

var keyFingerprintQuery = SQL(`SELECT fingerprint FROM service_key WHERE id = 1`)

// KeyFingerprint returns the fingerprint of the secret key that the database is used with; ""
// before its first use. BindSecretKey compares it.
func (l *Inspector) KeyFingerprint(ctx context.Context) (fingerprint string, err error) {
	err = l.One(ctx, keyFingerprintQuery.With(), &fingerprint)
	return fingerprint, IfNoRow(err, nil)
}

var instanceNameQuery = SQL(`SELECT name FROM database_name WHERE id = 1`)

// InstanceName returns the name that DB.InstanceName returns; "" before the first call of that.
func (l *Inspector) InstanceName(ctx context.Context) (name string, err error) {
	err = l.One(ctx, instanceNameQuery.With(), &name)
	return name, IfNoRow(err, nil)
}

// WALWarnSize returns the size in bytes from which SQLite's write-ahead log is worth a warning.
func WALWarnSize() int64 { return int64(defaultWALLimits().warn) * 4096 }

// QuickCheck has SQLite read its whole file, and returns the errors that it finds, 10 at most.
func (l *Inspector) QuickCheck(ctx context.Context) (faults []string, err error) {
	rows, err := l.sqlite.QueryContext(ctx, `PRAGMA quick_check(10)`)
	if err != nil {
		return nil, err
	}
	_, err = readRows(rows, func(r Row) error {
		var text string
		err := r.Scan(&text)
		if text != "ok" {
			faults = append(faults, text)
		}
		return err
	})
	return faults, err
}

// PostgresState holds settings and the connection usage of a PostgreSQL server.
type PostgresState struct {
	Version           string
	Fsync             bool
	FullPageWrites    bool // the setting full_page_writes
	SynchronousCommit string
	Standby           bool
	MaxConnections    int // the setting max_connections
	Reserved          int // connections reserved for superusers
	InUse             int
}

// Postgres returns the state of the PostgreSQL server. The settings are those of Mailstead's
// own sessions.
func (l *Inspector) Postgres(ctx context.Context) (s PostgresState, err error) {
	err = l.postgres.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync')::boolean,
		current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'), pg_is_in_recovery(),
		current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`).
		Scan(&s.Version, &s.Fsync, &s.FullPageWrites, &s.SynchronousCommit, &s.Standby, &s.MaxConnections, &s.Reserved, &s.InUse)
	return s, err
}
