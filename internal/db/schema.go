// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
)

// CheckSnapshot returns a fault.Invalid for a SQLite file that Snapshot can't have written: its
// schema differs from that of its version (a trigger, a view, a column), SQLite finds it damaged,
// or it has ids that the service never generates. A file that passes contains only data, and no
// code that SQLite would run.
func CheckSnapshot(ctx context.Context, path string) error {
	file, err := openSQLiteFile(path, "ro", "query_only(1)", "trusted_schema(0)", "cell_size_check(1)", "mmap_size(0)")
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	found, err := readSchema(ctx, file)
	if err != nil {
		return invalidFileFault("it can't be read: %s", err)
	}
	if _, ok := found["table schema_migration"]; !ok {
		return invalidFileFault("it has no schema version")
	}
	// A view or a trigger could forge the answers of the queries below.
	if odd := findViewOrTrigger(found); odd != "" {
		return invalidFileFault("it has a %s, which no version has", odd)
	}
	var version int64
	if err := file.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM schema_migration`).Scan(&version); err != nil {
		return err
	}
	wanted, err := schemaAt(ctx, version)
	if err != nil {
		return err
	}
	if difference := firstDifference(wanted, found); difference != "" {
		return invalidFileFault("%s is not as in version %d", difference, version)
	}
	if err := checkIntegrity(ctx, file); err != nil {
		return err
	}
	return checkIDs(ctx, file)
}

func invalidFileFault(format string, args ...any) error {
	return fault.New(fault.Invalid, "strange_database", "The database is none of this service's: "+format+".", args...)
}

// readSchema returns the definitions of a file's tables, indexes, views and triggers.
func readSchema(ctx context.Context, file *sql.DB) (map[string]string, error) {
	rows, err := file.QueryContext(ctx, `SELECT type, name, tbl_name, COALESCE(sql, '') FROM sqlite_schema`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // only read
	all := map[string]string{}
	for rows.Next() {
		var kind, name, table, text string
		if err := rows.Scan(&kind, &name, &table, &text); err != nil {
			return nil, err
		}
		if kind == "table" && (name == "sqlite_stat1" || name == "sqlite_stat4" || name == "sqlite_sequence") { // SQLite's own
			continue
		}
		key := kind + " " + name
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("the %s is there twice", key)
		}
		all[key] = table + " " + normalizeSQL(text)
	}
	return all, rows.Err()
}

// findViewOrTrigger returns the name of a view or trigger in the schema; "" if there is none.
func findViewOrTrigger(schema map[string]string) string {
	for key := range schema {
		if strings.HasPrefix(key, "view ") || strings.HasPrefix(key, "trigger ") {
			return key
		}
	}
	return ""
}

// schemaAt returns the schema of a version.
func schemaAt(ctx context.Context, version int64) (map[string]string, error) {
	fresh, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer fresh.Close() //nolint:errcheck // it is thrown away
	fresh.SetMaxOpenConns(1)
	if version < 1 {
		return nil, invalidFileFault("it has no schema version")
	}
	if err := migrateTo(ctx, SQLite, fresh, version); err != nil {
		return nil, err
	}
	return readSchema(ctx, fresh)
}

// firstDifference describes the first difference; "" if there is none.
func firstDifference(wanted, found map[string]string) string {
	var names []string
	for name, text := range wanted {
		if found[name] != text {
			names = append(names, name)
		}
	}
	for name := range found {
		if _, ok := wanted[name]; !ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	if len(names) == 0 {
		return ""
	}
	return "its " + names[0]
}

// normalizeSQL removes comments and repeated blanks from a statement: a later release may have
// reworded a migration's comments. A text with a NUL, where SQLite stops reading, stays unchanged.
func normalizeSQL(text string) string {
	if strings.IndexByte(text, 0) >= 0 {
		return text
	}
	var b strings.Builder
	blank := false
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := rest[0]; {
		case strings.HasPrefix(rest, "--"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			i, blank = i+n, true
			continue
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/") // "/*/" is not a complete comment
			if n < 0 {
				return b.String() + rest
			}
			i, blank = i+n+4, true
			continue
		case strings.IndexByte(" \t\r\n\f", c) >= 0:
			i, blank = i+1, true
			continue
		}
		if blank && b.Len() > 0 {
			b.WriteByte(' ')
		}
		blank = false
		n := 1
		if q := rest[0]; q == '\'' || q == '"' || q == '`' {
			if end := strings.IndexByte(rest[1:], q); end >= 0 {
				n = end + 2
			} else {
				n = len(rest)
			}
		}
		b.WriteString(rest[:n])
		i += n
	}
	return b.String()
}

// checkIntegrity has SQLite check all pages and rows.
func checkIntegrity(ctx context.Context, file *sql.DB) error {
	found, err := queryStrings(ctx, file, `PRAGMA quick_check(1)`)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return invalidFileFault("it is damaged: %s", err)
	case len(found) != 1 || found[0] != "ok":
		return invalidFileFault("it is damaged: %s", strings.Join(found, ", "))
	}
	return nil
}

// checkIDs returns a fault.Invalid for ids that the service never generates: those below 1, and
// those that are not integers. Rows with these ids would be skipped.
func checkIDs(ctx context.Context, file *sql.DB) error {
	tables, err := listTables(ctx, file)
	if err != nil {
		return err
	}
	for _, t := range tables {
		query := `SELECT CAST(id AS TEXT) FROM "` + t.name + `" WHERE id < 1 OR typeof(id) <> 'integer'`
		switch {
		case t.name == "blob":
			query += ` OR file < 0 OR size < LENGTH(bytes) OR typeof(file) <> 'integer' OR typeof(size) <> 'integer'`
		case t.name == "sts_policy", !t.hasColumn("id"): // a policy's id is a text from its domain's DNS
			continue
		}
		var id string
		err := file.QueryRowContext(ctx, query+` LIMIT 1`).Scan(&id)
		if err == nil {
			return invalidFileFault("row %q of its table %s has an id or a size that the service never gives", id, t.name)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}
