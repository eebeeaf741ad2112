// SPDX-License-Identifier: Apache-2.0

// Package fill multiplies rows by SQL: it turns a service with one mailbox into one with thousands,
// in a fraction of the time.
package fill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // "pgx"
	_ "modernc.org/sqlite"             // "sqlite"
)

// DB is the database of a stopped service.
type DB struct {
	db     *sql.DB
	sqlite bool
}

// Open opens the database in --database; dir is the data directory.
func Open(ctx context.Context, database, dir string) (*DB, error) {
	d := &DB{sqlite: database == "sqlite"}
	begin := []string{"SET synchronous_commit = off", "SET maintenance_work_mem = '512MB'"}
	var err error
	if d.sqlite {
		d.db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "mailstead.db"))
		// An interrupted fill is discarded.
		begin = []string{"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "PRAGMA cache_size = -1000000", "PRAGMA foreign_keys = OFF"}
	} else {
		d.db, err = sql.Open("pgx", database)
	}
	if err != nil {
		return nil, err
	}
	d.db.SetMaxOpenConns(1) // the pragmas apply to one connection
	for _, s := range begin {
		if err := d.Exec(ctx, s); err != nil {
			return nil, errors.Join(err, d.db.Close())
		}
	}
	return d, nil
}

// Close updates the planner's statistics, as autovacuum would over time, and closes the database.
func (d *DB) Close(ctx context.Context) (err error) {
	if !d.sqlite {
		err = d.Exec(ctx, "VACUUM ANALYZE")
	}
	return errors.Join(err, d.db.Close())
}

// Exec executes a statement.
func (d *DB) Exec(ctx context.Context, text string) error {
	_, err := d.db.ExecContext(ctx, text)
	if err != nil {
		err = fmt.Errorf("%.200s: %w", text, err)
	}
	return err
}

// QueryInt returns a number.
func (d *DB) QueryInt(ctx context.Context, text string) (int64, error) {
	all, err := d.QueryInts(ctx, text)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%.200s: %d rows", text, len(all))
	}
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// QueryInts returns numbers.
func (d *DB) QueryInts(ctx context.Context, text string) (all []int64, err error) {
	rows, err := d.db.QueryContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("%.200s: %w", text, err)
	}
	defer func() { _ = rows.Close() }() // read to its end
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}

// Values are the values of columns in the copies: expressions of k, which runs from 1 to the number
// of copies, and of the copied row r. Other columns have their value in r.
type Values map[string]string

// Copy makes n copies of each row of a table that matches where. It inserts the last copy first, so
// that ids that fall with k are inserted in ascending order.
func (d *DB) Copy(ctx context.Context, table, where string, n int, change Values) error {
	columns, err := d.columns(ctx, table)
	if err != nil {
		return err
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = "r." + c
		if e, ok := change[c]; ok {
			values[i] = e
		}
	}
	for c := range change {
		if !strings.Contains(" "+strings.Join(columns, " ")+" ", " "+c+" ") {
			return fmt.Errorf("the table %s has no column %s", table, c)
		}
	}
	return d.Exec(ctx, fmt.Sprintf("WITH RECURSIVE s(k) AS (SELECT %d UNION ALL SELECT k - 1 FROM s WHERE k > 1), "+
		"r AS MATERIALIZED (SELECT * FROM %s WHERE %s) INSERT INTO %s (%s) SELECT %s FROM s CROSS JOIN r",
		n, table, where, table, strings.Join(columns, ", "), strings.Join(values, ", ")))
}

func (d *DB) columns(ctx context.Context, table string) ([]string, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT * FROM "+table+" LIMIT 0")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // there are none
	columns, err := rows.Columns()
	return columns, errors.Join(err, rows.Err())
}

// Merge returns both sets of values.
func (c Values) Merge(more Values) Values {
	all := Values{}
	maps.Copy(all, c)
	maps.Copy(all, more)
	return all
}
