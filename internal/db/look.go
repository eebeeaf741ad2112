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

// Look is a database that is only looked at, beside a service or without one: it
// is not migrated, no file is made, and nothing can be written through it.
type Look struct {
	kind Engine
	file *sql.DB // of SQLite
	path string
	pool *pgxpool.Pool // of PostgreSQL
	name string
}

// LookOptions are what OpenLook needs to know.
type LookOptions struct {
	// URL is "sqlite:PATH" of the database file or "postgres://…".
	URL string
	// Alone says that no service runs on the file of SQLite, so that what a crash
	// left in its log has to be read without putting its index in order.
	Alone bool
}

// lookConns is how many connections to PostgreSQL a look takes: on a server
// that has few left it should still come in.
const lookConns = 2

// OpenLook opens a database to look at it. A file of SQLite that is not there is
// fs.ErrNotExist.
func OpenLook(ctx context.Context, o LookOptions) (*Look, error) {
	if path, isFile := strings.CutPrefix(o.URL, "sqlite:"); isFile {
		return lookSQLite(ctx, path, o.Alone)
	}
	return lookPostgres(ctx, o.URL)
}

func lookSQLite(ctx context.Context, path string, alone bool) (*Look, error) {
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
	file.SetMaxOpenConns(lookConns)
	l := &Look{kind: SQLite, file: file, path: path, name: path}
	var pages int64
	if err := file.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		var se *sqlite.Error
		if alone && errors.As(err, &se) && se.Code() == sqlite3.SQLITE_READONLY_CANTINIT {
			_ = file.Close()
			return lookSQLite(ctx, path, false) // somebody has it open, in another container
		}
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

func lookPostgres(ctx context.Context, url string) (*Look, error) {
	cfg, err := parsePostgres(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = lookConns, 0, 0
	cfg.AfterConnect = settled
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l := &Look{kind: Postgres, pool: pool}
	l.name = fmt.Sprintf("%s on %s", cfg.ConnConfig.Database, cfg.ConnConfig.Host)
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, refusal(err)
	}
	return l, nil
}

// Close ends the look.
func (l *Look) Close() error {
	if l.kind == Postgres {
		l.pool.Close()
		return nil
	}
	return l.file.Close()
}

// Engine says which of the two this is.
func (l *Look) Engine() Engine { return l.kind }

// Name says which database this is, without a password.
func (l *Look) Name() string { return l.name }

// Each calls f for every row that s returns.
func (l *Look) Each(ctx context.Context, s Statement, f func(Row) error) error {
	if l.kind == Postgres {
		rows, err := l.pool.Query(ctx, s.query.postgres, s.args...)
		if err == nil {
			_, err = readPgRows(rows, f)
		}
		return looked(s.query, err)
	}
	rows, err := l.file.QueryContext(ctx, s.query.sqlite, s.args...)
	if err == nil {
		_, err = readRows(rows, f)
	}
	return looked(s.query, err)
}

func looked(q *Query, err error) error {
	if err == nil || errors.Is(err, errStop) {
		return err
	}
	return describe(q, err)
}

// One scans the first row that s returns, or returns ErrNoRow.
func (l *Look) One(ctx context.Context, s Statement, dst ...any) error {
	return one(func(f func(Row) error) error { return l.Each(ctx, s, f) }, dst)
}

// Schema is how the schema of a database stands to this program.
type Schema struct {
	Version int64 // the newest migration that it has; 0: it is empty
	Known   int64 // the newest that this program has
	Missing int   // migrations of this program that it lacks
}

var applied = SQL(`SELECT version_id FROM schema_version WHERE id > 0 AND version_id > 0 ORDER BY id LIMIT 10000`)

// Schema compares the schema with this program's.
func (l *Look) Schema(ctx context.Context) (s Schema, err error) {
	missing := map[int64]bool{}
	names, err := fs.Glob(migrationTexts, "migrations/*.sql")
	if err != nil {
		return s, err
	}
	for _, name := range names {
		var version int64
		if _, err := fmt.Sscanf(name, "migrations/%d_", &version); err != nil {
			return s, err
		}
		missing[version], s.Known = true, max(s.Known, version)
	}
	there, err := l.migrated(ctx)
	if err == nil && there {
		err = l.Each(ctx, applied.With(), func(r Row) error {
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

// migrated reports whether any migration was ever made.
func (l *Look) migrated(ctx context.Context) (there bool, err error) {
	if l.kind == Postgres {
		err = l.pool.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&there)
		return there, err
	}
	err = l.file.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'`).Scan(&there)
	return there, err
}

var clock = SQL(`SELECT {now}`)

// Now is what the clock of the database says: on SQLite that of this machine.
func (l *Look) Now(ctx context.Context) (time.Time, error) {
	var micros int64
	err := l.One(ctx, clock.With(), &micros)
	return Time(micros), err
}

var keyKnown = SQL(`SELECT fingerprint FROM service_key WHERE id = 1`)

// KeyFingerprint is that of the secret key that the database is used with; ""
// before it was first used. SameKey compares it.
func (l *Look) KeyFingerprint(ctx context.Context) (fingerprint string, err error) {
	err = l.One(ctx, keyKnown.With(), &fingerprint)
	if errors.Is(err, ErrNoRow) {
		err = nil
	}
	return fingerprint, err
}

var nameKnown = SQL(`SELECT name FROM database_name WHERE id = 1`)

// OwnName is what DB.Name says; "" before it was first asked for.
func (l *Look) OwnName(ctx context.Context) (name string, err error) {
	err = l.One(ctx, nameKnown.With(), &name)
	if errors.Is(err, ErrNoRow) {
		err = nil
	}
	return name, err
}

// NodeState is a node as the database knows it, by the clock of the database.
type NodeState struct {
	Name    string
	Seen    time.Time // when it last renewed; ids are not made before
	Tenure  ID        // of its life; 0: it has none, or has handed everything over
	Holder  string    // names the data folder of that
	Expires time.Time // of that; zero once the node has ended it
	Live    bool
}

var nodeStates = SQL(`SELECT n.name, n.seen_at, COALESCE(t.id, 0), COALESCE(t.holder, ''),
		COALESCE(t.expires_at, 0), COALESCE(t.expires_at, 0) > {now}
	FROM node AS n LEFT JOIN tenure AS t ON t.node = n.id ORDER BY n.name, t.id LIMIT 2000`)

// Nodes lists the nodes by name; one whose former lives are not wound up yet is
// there several times.
func (l *Look) Nodes(ctx context.Context) ([]NodeState, error) {
	return All(ctx, l, nodeStates.With(), func(r Row) (n NodeState, err error) {
		var seen, expires int64
		err = r.Scan(&n.Name, &seen, &n.Tenure, &n.Holder, &expires, &n.Live)
		n.Seen, n.Expires = Time(seen), Time(expires)
		return n, err
	})
}

// WALAlarm is from how many bytes on the write-ahead log of SQLite is told to
// the operator.
func WALAlarm() int64 { return int64(defaultWAL().alarm) * 4096 }

// QuickCheck has SQLite read its whole file, and returns what is wrong with it.
func (l *Look) QuickCheck(ctx context.Context) (faults []string, err error) {
	rows, err := l.file.QueryContext(ctx, `PRAGMA quick_check(10)`)
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
	Version     string
	Fsync       bool
	FullPages   bool // full_page_writes
	Synchronous string
	Standby     bool
	Connections int // at most
	Reserved    int // of them, for superusers
	Taken       int
}

// Postgres asks the server how it is. Settings are those of our own sessions.
func (l *Look) Postgres(ctx context.Context) (s PostgresState, err error) {
	err = l.pool.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync')::boolean,
		current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'), pg_is_in_recovery(),
		current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`).
		Scan(&s.Version, &s.Fsync, &s.FullPages, &s.Synchronous, &s.Standby, &s.Connections, &s.Reserved, &s.Taken)
	return s, err
}
