// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Snapshot writes a consistent copy of a database into a new SQLite file. It works with both
// engines, as they have the same schema. The service may run meanwhile; on SQLite its write-ahead
// log grows until Snapshot is done. When Snapshot returns, the file is durable; after an error
// the caller must delete it.
func Snapshot(ctx context.Context, from, path string) error {
	// Created here, the file is not readable by other users. An existing file is not touched.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if source, isFile := strings.CutPrefix(from, "sqlite:"); isFile {
		err = vacuumInto(ctx, source, path)
	} else {
		err = copyFromPostgres(ctx, from, path)
	}
	if err != nil {
		return fmt.Errorf("copying the database: %w", err)
	}
	if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// openSQLiteFile opens a SQLite file that nobody else uses, or opens one for reading.
func openSQLiteFile(path, mode string, pragmas ...string) (*sql.DB, error) {
	v := url.Values{"mode": {mode}, "_pragma": append(pragmas, fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()))}
	d, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+v.Encode())
	if err == nil {
		d.SetMaxOpenConns(1)
	}
	return d, err
}

func vacuumInto(ctx context.Context, source, path string) error {
	d, err := openSQLiteFile(source, "rw") // not "ro": SQLite may have to create the log's index
	if err != nil {
		return err
	}
	_, err = d.ExecContext(ctx, `VACUUM INTO ?`, path)
	return errors.Join(err, d.Close())
}

// copyFromPostgres creates a file with the schema version of the PostgreSQL database, and copies
// every row of one snapshot into it.
func copyFromPostgres(ctx context.Context, from, path string) error {
	pg, err := connectUnlimited(ctx, from)
	if err != nil {
		return err
	}
	defer pg.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only reads
	version, err := schemaVersion(ctx, pg)
	switch {
	case err != nil:
		return err
	case version == 0:
		return errors.New("no service has run on this database")
	}
	file, err := openSQLiteFile(path, "rwc", "journal_mode(OFF)", "synchronous(OFF)", "cache_size(-16000)")
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // closed below
	if err := migrateTo(ctx, SQLite, file, version); err != nil {
		return err
	}
	tables, err := listTables(ctx, file)
	if err != nil {
		return err
	}
	tx, err := pg.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it only reads
	// If a migration rewrites a table, a transaction with an older snapshot sees no rows in
	// it. So the locks come first: they are taken before the snapshot.
	if _, err := tx.Exec(ctx, `LOCK TABLE schema_migration, `+quotedNames(tables)+` IN ACCESS SHARE MODE`); err != nil {
		return err
	}
	switch now, err := schemaVersion(ctx, tx); {
	case err != nil:
		return err
	case now != version:
		return errors.New("the database was migrated to another release meanwhile; begin again")
	}
	if err := copyTables(ctx, file, tx, tables); err != nil {
		return err
	}
	return file.Close()
}

// connectUnlimited opens a connection for a long read or write, without the service's time
// limits.
func connectUnlimited(ctx context.Context, to string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(to)
	if err != nil {
		return nil, errURL
	}
	for _, name := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		cfg.RuntimeParams[name] = "0"
	}
	cfg.RuntimeParams["lock_timeout"] = sessionSettings["lock_timeout"] // others queue behind one that waits for a lock
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, explainConnectError(err)
	}
	return conn, checkSessionOrClose(ctx, conn)
}

// querier is a connection to PostgreSQL, in a transaction or not.
type querier interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// schemaVersion returns the number of the last migration of a database; 0 without a schema.
func schemaVersion(ctx context.Context, pg querier) (version int64, err error) {
	var there bool
	err = pg.QueryRow(ctx, `SELECT to_regclass('schema_migration') IS NOT NULL`).Scan(&there)
	if err == nil && there {
		err = pg.QueryRow(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM schema_migration WHERE is_applied`).Scan(&version)
	}
	return version, err
}

// table is a table to copy.
type table struct {
	name       string
	columns    []string
	primaryKey []string // order in which SQLite stores the rows; nil for a rowid table
}

// listTables lists the tables of a file, each after those that it refers to, without the tables
// about the server itself.
func listTables(ctx context.Context, file *sql.DB) (list []table, err error) {
	names, err := queryStrings(ctx, file, `SELECT name FROM sqlite_master WHERE type = 'table'
		AND name NOT LIKE 'sqlite_%' AND name NOT IN ('schema_migration', 'server_incarnation') ORDER BY name`)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("there is no service in this database")
	}
	listed := map[string]bool{}
	for len(list) < len(names) {
		before := len(list)
		for _, name := range names {
			if listed[name] {
				continue
			}
			needs, err := queryStrings(ctx, file, `SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)`, name)
			if err != nil {
				return nil, err
			}
			ready := true
			for _, n := range needs {
				ready = ready && listed[n]
			}
			if !ready {
				continue
			}
			t := table{name: name}
			if t.columns, err = queryStrings(ctx, file, `SELECT name FROM pragma_table_info(?) ORDER BY cid`, name); err != nil {
				return nil, err
			}
			if t.primaryKey, err = queryStrings(ctx, file, `SELECT i.name FROM pragma_table_list(?1) AS t JOIN pragma_table_info(?1) AS i
				WHERE t.wr = 1 AND i.pk > 0 ORDER BY i.pk`, name); err != nil {
				return nil, err
			}
			list, listed[name] = append(list, t), true
		}
		if len(list) == before {
			return nil, errors.New("tables refer to each other in a circle")
		}
	}
	return list, nil
}

func queryStrings(ctx context.Context, d *sql.DB, query string, args ...any) (list []string, err error) {
	rows, err := d.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	_, err = readRows(rows, func(r Row) error {
		var text string
		err := r.Scan(&text)
		list = append(list, text)
		return err
	})
	return list, err
}

func quotedNames(tables []table) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = `"` + t.name + `"`
	}
	return strings.Join(names, ", ")
}

func (t *table) quotedColumns() string { return `"` + strings.Join(t.columns, `", "`) + `"` }

func (t *table) hasColumn(column string) bool { return slices.Contains(t.columns, column) }
