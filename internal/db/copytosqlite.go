// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Rows are copied from PostgreSQL into a SQLite file in bulk: a statement inserts many rows
// while the next ones are read. Indexes are created at the end, each from a sorted list, for
// which SQLite uses temporary files.

// A batch holds batchRows rows, or fewer once they take batchBytes.
const (
	batchRows  = 50
	batchBytes = 256 << 10
)

// copyTables copies all rows. The target tables are empty, or hold only rows from migrations.
func copyTables(ctx context.Context, file *sql.DB, from pgx.Tx, tables []table) error {
	indexes, err := dropSQLiteIndexes(ctx, file)
	if err != nil {
		return err
	}
	// For the tables that are read in the order of their keys.
	if _, err := from.Exec(ctx, `SET LOCAL work_mem = '32MB'`); err != nil {
		return err
	}
	conn, err := file.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(c any) error {
		to, ok := c.(sqliteDriverConn)
		if !ok {
			return fmt.Errorf("%T can't prepare statements", c)
		}
		for _, t := range tables {
			if err := t.copyToSQLite(ctx, to, from); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		return nil
	})
	if err = errors.Join(err, conn.Close()); err != nil {
		return err
	}
	for _, text := range indexes {
		if _, err := file.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("making an index: %w", err)
		}
	}
	return nil
}

// dropSQLiteIndexes drops all indexes, and returns the statements that create them again.
func dropSQLiteIndexes(ctx context.Context, file *sql.DB) ([]string, error) {
	names, err := queryStrings(ctx, file, `SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	again, err := queryStrings(ctx, file, `SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := file.ExecContext(ctx, `DROP INDEX "`+name+`"`); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// sqliteDriverConn is the driver's connection to SQLite. It bypasses database/sql, which takes
// longer for a row than SQLite does.
type sqliteDriverConn interface {
	driver.ConnPrepareContext
	driver.ExecerContext
}

// rowBatch is a batch of rows to insert, in order.
type rowBatch struct {
	values []driver.NamedValue
	rows   int
}

// copyToSQLite copies the table's rows from PostgreSQL.
func (t *table) copyToSQLite(ctx context.Context, to sqliteDriverConn, from pgx.Tx) (err error) {
	// Each statement would watch ctx, which is slow. The reader checks ctx between batches.
	in := context.WithoutCancel(ctx)
	if _, err := to.ExecContext(in, `BEGIN`, nil); err != nil {
		return err
	}
	if _, err := to.ExecContext(in, `DELETE FROM "`+t.name+`"`, nil); err != nil { // rows from migrations
		return err
	}
	one, err := t.prepareInsert(in, to, 1)
	if err != nil {
		return err
	}
	defer one.Close() //nolint:errcheck // what was written is told by each
	many, err := t.prepareInsert(in, to, batchRows)
	if err != nil {
		return err
	}
	defer many.Close() //nolint:errcheck // likewise
	reading, stop := context.WithCancel(ctx)
	batches, ended := make(chan rowBatch, 1), make(chan error, 1)
	go func() {
		defer close(batches)
		ended <- t.readBatches(reading, from, batches)
	}()
	for b := range batches {
		if err == nil {
			if err = b.write(in, one, many, len(t.columns)); err != nil {
				stop() // and drain the batches
			}
		}
	}
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	_, err = to.ExecContext(in, `COMMIT`, nil)
	return err
}

type sqliteDriverStmt interface {
	driver.Stmt
	driver.StmtExecContext
}

// prepareInsert prepares a statement that inserts the given number of rows.
func (t *table) prepareInsert(ctx context.Context, to sqliteDriverConn, rows int) (sqliteDriverStmt, error) {
	row := `(?` + strings.Repeat(`, ?`, len(t.columns)-1) + `)`
	made, err := to.PrepareContext(ctx, `INSERT INTO "`+t.name+`" (`+t.quotedColumns()+`) VALUES `+row+strings.Repeat(`, `+row, rows-1))
	if err != nil {
		return nil, err
	}
	stmt, ok := made.(sqliteDriverStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T takes no context", made), made.Close())
	}
	return stmt, nil
}

func (b *rowBatch) write(ctx context.Context, one, many sqliteDriverStmt, columns int) error {
	if b.rows == batchRows {
		_, err := many.ExecContext(ctx, b.values)
		return err
	}
	for i := range b.rows {
		if _, err := one.ExecContext(ctx, ordinals(b.values[i*columns:][:columns])); err != nil {
			return err
		}
	}
	return nil
}

// ordinals numbers the values of one statement.
func ordinals(values []driver.NamedValue) []driver.NamedValue {
	for i := range values {
		values[i].Ordinal = i + 1
	}
	return values
}

// readBatches reads all rows of the table, from one snapshot, and sends them in batches.
func (t *table) readBatches(ctx context.Context, from pgx.Tx, into chan<- rowBatch) error {
	query := `SELECT ` + t.quotedColumns() + ` FROM "` + t.name + `"`
	if len(t.primaryKey) > 0 { // SQLite stores the rows in this order
		query += ` ORDER BY "` + strings.Join(t.primaryKey, `", "`) + `"`
	}
	rows, err := from.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	kinds := make([]uint32, len(t.columns))
	for i, f := range rows.FieldDescriptions() {
		if kinds[i] = f.DataTypeOID; f.Format == pgtype.TextFormatCode {
			kinds[i] = pgtype.TextOID
		}
	}
	var b rowBatch
	bytes := 0
	for rows.Next() {
		if b.values == nil {
			b.values = make([]driver.NamedValue, 0, batchRows*len(kinds))
		}
		for i, raw := range rows.RawValues() {
			v, err := sqliteValue(kinds[i], raw)
			if err != nil {
				return fmt.Errorf("column %s: %w", t.columns[i], err)
			}
			b.values = append(b.values, driver.NamedValue{Ordinal: len(b.values) + 1, Value: v})
			bytes += len(raw)
		}
		if b.rows++; b.rows == batchRows || bytes >= batchBytes {
			select {
			case into <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
			b, bytes = rowBatch{}, 0
		}
	}
	if err := rows.Err(); err != nil || b.rows == 0 {
		return err
	}
	into <- b
	return nil
}

// sqliteValue converts a value in PostgreSQL's binary format for SQLite.
func sqliteValue(kind uint32, raw []byte) (driver.Value, error) {
	switch {
	case raw == nil:
		return nil, nil //nolint:nilnil // that is NULL
	case kind == pgtype.TextOID:
		return string(raw), nil
	case kind == pgtype.ByteaOID:
		return append([]byte{}, raw...), nil
	case kind == pgtype.Int8OID && len(raw) == 8:
		return int64(binary.BigEndian.Uint64(raw)), nil
	case kind == pgtype.Int4OID && len(raw) == 4:
		return int64(int32(binary.BigEndian.Uint32(raw))), nil
	case kind == pgtype.BoolOID && len(raw) == 1:
		return raw[0] != 0, nil
	}
	return nil, fmt.Errorf("a value of type %d can't be copied", kind)
}
