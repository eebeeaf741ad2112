// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mailstead/mailstead/internal/fault"
)

// CopyToPostgres copies all rows of a SQLite file into a PostgreSQL database, in one
// transaction. Both engines have the same schema; the file's must be up to date, as Open
// leaves it. A database on which a service has started is a fault.Conflict, and is left
// unchanged.
func CopyToPostgres(ctx context.Context, path, to string) error {
	file, err := openSQLiteFile(path, "rw", "query_only(1)")
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it only reads
	tables, err := listTables(ctx, file)
	if err != nil {
		return err
	}
	pg, err := connectUnlimited(ctx, to)
	if err != nil {
		return err
	}
	defer pg.Close(context.WithoutCancel(ctx))   //nolint:errcheck // committed by then
	if err := checkUnused(ctx, pg); err != nil { // before anything is changed, or a running service has to wait
		return err
	}
	conn := stdlib.OpenDB(*pg.Config())
	if err := errors.Join(migrate(ctx, Postgres, conn, slog.Default()), conn.Close()); err != nil {
		return err
	}
	tx, err := pg.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing to be undone after Commit
	if err := clearTables(ctx, tx, tables); err != nil {
		return err
	}
	indexes, err := dropPostgresIndexes(ctx, tx, tables)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := t.copyToPostgres(ctx, file, tx); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	for _, text := range indexes {
		if _, err := tx.Exec(ctx, text); err != nil {
			return fmt.Errorf("making an index: %w", err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	// The planner needs statistics for the first queries. Without ANALYZE, autovacuum
	// collects them somewhat later.
	_, _ = pg.Exec(ctx, `ANALYZE`)
	return nil
}

// clearTables deletes the rows that the migrations inserted, and locks the tables until the
// end of the transaction.
func clearTables(ctx context.Context, tx pgx.Tx, tables []table) error {
	all := quotedNames(tables)
	if _, err := tx.Exec(ctx, `LOCK TABLE `+all+` IN ACCESS EXCLUSIVE MODE`); err != nil {
		return err
	}
	if err := checkUnused(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `TRUNCATE `+all)
	return err
}

// dropPostgresIndexes drops the indexes of empty tables, except for those of constraints. It
// returns the statements that create them again: to build an index over all rows at once is
// faster than row by row.
func dropPostgresIndexes(ctx context.Context, tx pgx.Tx, tables []table) (again []string, err error) {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = `"` + t.name + `"`
	}
	rows, err := tx.Query(ctx, `SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
		FROM unnest($1::text[]) AS t (name) JOIN pg_index AS i ON i.indrelid = to_regclass(t.name)
		WHERE NOT EXISTS (SELECT 1 FROM pg_constraint AS c WHERE c.conindid = i.indexrelid) ORDER BY i.indexrelid`, names)
	if err != nil {
		return nil, err
	}
	var drop []string
	var name, text string
	if _, err := pgx.ForEachRow(rows, []any{&name, &text}, func() error {
		drop, again = append(drop, name), append(again, text)
		return nil
	}); err != nil {
		return nil, err
	}
	for _, name := range drop {
		if _, err := tx.Exec(ctx, `DROP INDEX `+name); err != nil {
			return nil, err
		}
	}
	_, err = tx.Exec(ctx, `SET LOCAL maintenance_work_mem = '64MB'`)
	return again, err
}

// CheckUnused returns a fault.Conflict if CopyToPostgres would reject the PostgreSQL database.
func CheckUnused(ctx context.Context, url string) error {
	pg, err := connectUnlimited(ctx, url)
	if err != nil {
		return err
	}
	defer pg.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only reads
	return checkUnused(ctx, pg)
}

func checkUnused(ctx context.Context, pg querier) error {
	var used bool
	err := pg.QueryRow(ctx, `SELECT to_regclass('service_key') IS NOT NULL`).Scan(&used)
	if err == nil && used {
		err = pg.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM service_key)`).Scan(&used)
	}
	if err == nil && used {
		err = fault.New(fault.Conflict, "database_in_use", "The PostgreSQL database is a service's already. Name one that is empty.")
	}
	return err
}

// copyToPostgres copies the table's rows into PostgreSQL.
func (t *table) copyToPostgres(ctx context.Context, file *sql.DB, to pgx.Tx) error {
	kinds, err := t.columnTypes(ctx, to)
	if err != nil {
		return err
	}
	rows, err := file.QueryContext(ctx, `SELECT `+t.quotedColumns()+` FROM "`+t.name+`"`)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // it only reads
	_, err = to.CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, &rowSource{rows: rows, types: kinds})
	return errors.Join(err, rows.Err())
}

// columnTypes returns the OIDs of the types of the table's columns.
func (t *table) columnTypes(ctx context.Context, tx pgx.Tx) ([]uint32, error) {
	rows, err := tx.Query(ctx, `SELECT `+t.quotedColumns()+` FROM "`+t.name+`" LIMIT 0`)
	if err != nil {
		return nil, err
	}
	kinds := make([]uint32, len(t.columns))
	for i, f := range rows.FieldDescriptions() {
		kinds[i] = f.DataTypeOID
	}
	rows.Close()
	return kinds, rows.Err()
}

// rowSource passes SQLite's rows to COPY.
type rowSource struct {
	rows   *sql.Rows
	types  []uint32
	values []any
	err    error
}

// Next implements pgx.CopyFromSource.
func (s *rowSource) Next() bool { return s.err == nil && s.rows.Next() }

// Err implements pgx.CopyFromSource.
func (s *rowSource) Err() error { return errors.Join(s.err, s.rows.Err()) }

// Values implements pgx.CopyFromSource.
func (s *rowSource) Values() ([]any, error) {
	s.values = make([]any, len(s.types))
	into := make([]any, len(s.types))
	for i := range into {
		into[i] = &s.values[i]
	}
	if s.err = s.rows.Scan(into...); s.err != nil {
		return nil, s.err
	}
	for i, kind := range s.types {
		s.values[i] = postgresValue(kind, s.values[i])
	}
	return s.values, nil
}

// postgresValue converts a value to the type of PostgreSQL's column: in SQLite each value has
// its own type, and a text may hold bytes that PostgreSQL rejects.
func postgresValue(kind uint32, v any) any {
	switch v := v.(type) {
	case []byte:
		if kind == pgtype.TextOID {
			return toValidText(string(v))
		}
		if v == nil { // how the driver reads an empty blob
			return []byte{}
		}
	case string:
		if kind == pgtype.ByteaOID {
			return []byte(v)
		}
		return toValidText(v)
	case int64:
		if kind == pgtype.BoolOID {
			return v != 0
		}
	}
	return v
}

func toValidText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
