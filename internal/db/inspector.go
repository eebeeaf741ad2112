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

// Inspector is a database that is only looked at, beside a service or without one: it
// is not migrated, no file is made, and nothing can be written through it.
type Inspector struct {
	kind     Engine
	sqlite   *sql.DB // of SQLite
	path     string
	postgres *pgxpool.Pool // of PostgreSQL
	name     string
}

// InspectOptions are what OpenInspector needs to know.
type InspectOptions struct {
	// URL is "sqlite:PATH" of the database file or "postgres://…".
	URL string
	// Offline says that no service runs on the file of SQLite, so that what a crash
	// left in its log has to be read without putting its index in order.
	Offline bool
}

// inspectorConns is how many connections to PostgreSQL a look takes: on a server
// that has few left it should still come in.
const inspectorConns = 2

// OpenInspector opens a database to look at it. A file of SQLite that is not there is
// fs.ErrNotExist.
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
		// Whoever opens a WAL database makes its log and index, even to read, unless
		// it is told that nobody writes: nobody does, who had made them.
		v.Set("immutable", "1")
	case alone:
		// What is in the log counts, but its index stays as it is: another one is
		// made in memory.
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
			return inspectSQLite(ctx, path, false) // somebody has it open, in another container
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

// Close ends the look.
func (l *Inspector) Close() error {
	if l.kind == Postgres {
		l.postgres.Close()
		return nil
	}
	return l.sqlite.Close()
}

// Engine says which of the two this is.
func (l *Inspector) Engine() Engine { return l.kind }

// Name says which database this is, without a password.
func (l *Inspector) Name() string { return l.name }

// Each calls f for every row that s returns.
func (l *Inspector) Each(ctx context.Context, s Statement, f func(Row) error) error {
	if l.kind == Postgres {
		rows, err := l.postgres.Query(ctx, s.query.postgres, s.args...)
		if err == nil {
			_, err = readPgRows(rows, f)
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

// SchemaState is how the schema of a database stands to this program.
type SchemaState struct {
	Version int64 // the newest migration that it has; 0: it is empty
	Latest  int64 // the newest that this program has
	Missing int   // migrations of this program that it lacks
}

var appliedMigrationsQuery = SQL(`SELECT version_id FROM schema_version WHERE id > 0 AND version_id > 0 ORDER BY id LIMIT 10000`)

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

// hasSchema reports whether any migration was ever made.
func (l *Inspector) hasSchema(ctx context.Context) (there bool, err error) {
	if l.kind == Postgres {
		err = l.postgres.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&there)
		return there, err
	}
	err = l.sqlite.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'`).Scan(&there)
	return there, err
}

var nowQuery = SQL(`SELECT {now}`)

// Now is what the clock of the database says: on SQLite that of this machine.
func (l *Inspector) Now(ctx context.Context) (time.Time, error) {
	var micros int64
	err := l.One(ctx, nowQuery.With(), &micros)
	return Time(micros), err
}

var keyFingerprintQuery = SQL(`SELECT fingerprint FROM service_key WHERE id = 1`)

// KeyFingerprint is that of the secret key that the database is used with; ""
// before it was first used. BindSecretKey compares it.
func (l *Inspector) KeyFingerprint(ctx context.Context) (fingerprint string, err error) {
	err = l.One(ctx, keyFingerprintQuery.With(), &fingerprint)
	if errors.Is(err, ErrNoRow) {
		err = nil
	}
	return fingerprint, err
}

var instanceNameQuery = SQL(`SELECT name FROM database_name WHERE id = 1`)

// InstanceName is what DB.InstanceName says; "" before it was first asked for.
func (l *Inspector) InstanceName(ctx context.Context) (name string, err error) {
	err = l.One(ctx, instanceNameQuery.With(), &name)
	if errors.Is(err, ErrNoRow) {
		err = nil
	}
	return name, err
}

// NodeState is a node as the database knows it, by the clock of the database.
type NodeState struct {
	Name     string
	LastSeen time.Time // when it last renewed; ids are not made before
	LeaseID  ID        // of its life; 0: it has none, or has handed everything over
	Holder   string    // names the data folder of that
	Expires  time.Time // of that; zero once the node has ended it
	Live     bool
}

var nodeStatesQuery = SQL(`SELECT n.name, n.seen_at, COALESCE(t.id, 0), COALESCE(t.holder, ''),
		COALESCE(t.expires_at, 0), COALESCE(t.expires_at, 0) > {now}
	FROM node AS n LEFT JOIN tenure AS t ON t.node = n.id ORDER BY n.name, t.id LIMIT 2000`)

// Nodes lists the nodes by name; one whose former lives are not wound up yet is
// there several times.
func (l *Inspector) Nodes(ctx context.Context) ([]NodeState, error) {
	return All(ctx, l, nodeStatesQuery.With(), func(r Row) (n NodeState, err error) {
		var seen, expires int64
		err = r.Scan(&n.Name, &seen, &n.LeaseID, &n.Holder, &expires, &n.Live)
		n.LastSeen, n.Expires = Time(seen), Time(expires)
		return n, err
	})
}

// WALWarnSize is from how many bytes on the write-ahead log of SQLite is told to
// the operator.
func WALWarnSize() int64 { return int64(defaultWALLimits().warn) * 4096 }

// QuickCheck has SQLite read its whole file, and returns what is wrong with it.
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

// PostgresState is how a server of PostgreSQL is set and what it has left.
type PostgresState struct {
	Version           string
	Fsync             bool
	FullPageWrites    bool // full_page_writes
	SynchronousCommit string
	Standby           bool
	MaxConnections    int // at most
	Reserved          int // of them, for superusers
	InUse             int
}

// Postgres asks the server how it is. Settings are those of our own sessions.
func (l *Inspector) Postgres(ctx context.Context) (s PostgresState, err error) {
	err = l.postgres.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync')::boolean,
		current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'), pg_is_in_recovery(),
		current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`).
		Scan(&s.Version, &s.Fsync, &s.FullPageWrites, &s.SynchronousCommit, &s.Standby, &s.MaxConnections, &s.Reserved, &s.InUse)
	return s, err
}
