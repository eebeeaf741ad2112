// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// small lists tables with few rows, for which a full scan is allowed.
var small = []string{"node", "lease", "leader_job", "queue_hold"}

// scans lists queries that may scan a growing table, with the reason.
var scans = map[string]string{
	`SELECT COALESCE(MIN(uidvalidity), 0) FROM folder`: "once, in a copy that is being restored",
}

// compares lists files with queries that compare up to a thousand chosen rows with all rows of a
// small set: the enabled webhooks.
var compares = []string{"internal/webhook/create.go"}

type namedQuery struct{ where, text string }

// Every query of the project runs on both engines and scans no growing table.
func TestExplain(t *testing.T) {
	queries := projectQueries(t)
	if len(queries) < 10 {
		t.Fatalf("found %d queries only", len(queries))
	}
	t.Run("sqlite", func(t *testing.T) { explainSQLite(t, queries) })
	t.Run("postgres", func(t *testing.T) { explainPostgres(t, queries) })
}

// projectQueries reads the texts given to db.SQL and db.PagedSQL: literals and
// constants of the package, also several joined.
func projectQueries(t *testing.T) (queries []namedQuery) {
	root := "../.."
	files, constants := map[string]*ast.File{}, map[string]map[string]ast.Expr{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasSuffix(path, "test") { // a helper of tests
			return filepath.SkipDir
		}
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files[path] = file
		of := constants[filepath.Dir(path)]
		if of == nil {
			of = map[string]ast.Expr{}
			constants[filepath.Dir(path)] = of
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, spec := range g.Specs {
					v := spec.(*ast.ValueSpec)
					for i, value := range v.Values {
						of[v.Names[i].Name] = value
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				if x, ok := f.X.(*ast.Ident); ok && x.Name == "db" {
					name = f.Sel.Name
				}
			}
			if name != "SQL" && name != "PagedSQL" {
				return true
			}
			where, _ := filepath.Rel(root, path)
			text, ok := literal(call.Args[0], constants[filepath.Dir(path)])
			if !ok && where == filepath.Join("internal", "db", "page.go") {
				return true // PagedSQL itself
			}
			if !ok {
				t.Errorf("%s: the text of a query that can't be read: literals and constants only", where)
				return true
			}
			if name == "PagedSQL" {
				older, newer := db.PagedSQLTexts(text)
				queries = append(queries, namedQuery{where, older}, namedQuery{where, newer})
			} else if first, _, _ := strings.Cut(text, " "); !slices.Contains([]string{"BEGIN", "COMMIT", "ROLLBACK"}, first) {
				queries = append(queries, namedQuery{where, text})
			}
			return true
		})
	}
	return queries
}

// literal returns the text of a string literal, a constant, or of several joined
// by +.
func literal(e ast.Expr, constants map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		value, ok := constants[e.Name]
		if !ok {
			return "", false
		}
		return literal(value, constants)
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		a, okA := literal(e.X, constants)
		b, okB := literal(e.Y, constants)
		return a + b, okA && okB
	}
	return "", false
}

var (
	placeholder  = regexp.MustCompile(`\$(\d+)`)
	sqliteScan   = regexp.MustCompile(`^SCAN (\w+)(?: EXISTS)?(?: USING (?:COVERING )?INDEX (\w+))?`)
	postgresScan = regexp.MustCompile(`(?:Seq Scan) on (\w+)`)
	changes      = regexp.MustCompile(`^(?:Update|Delete) on`)
	chosen       = regexp.MustCompile(`-> +(?:CTE|Subquery) Scan on`)
)

// sqliteWriter opens a database without db.Open.
func sqliteConn(t *testing.T, url string) *sql.DB {
	t.Helper()
	conn, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // nothing to lose
	return conn
}

func explainSQLite(t *testing.T, queries []namedQuery) {
	url := dbtest.SQLite(t)
	dbtest.Open(t, url)
	conn := sqliteConn(t, url)
	partial := map[string]bool{}
	tables := map[string]bool{}
	rows, err := conn.Query(`SELECT name, type, COALESCE(sql, '') FROM sqlite_schema`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name, kind, text string
		if err := rows.Scan(&name, &kind, &text); err != nil {
			t.Fatal(err)
		}
		partial[name] = kind == "index" && strings.Contains(text, " WHERE ")
		tables[name] = kind == "table"
	}
	if err := errorsOf(rows); err != nil {
		t.Fatal(err)
	}
	for _, q := range queries {
		plan, err := sqlitePlan(conn, q.text)
		if err != nil {
			t.Errorf("%s: %v\n%s", q.where, err, q.text)
			continue
		}
		for _, line := range plan {
			m := sqliteScan.FindStringSubmatch(line)
			if m == nil || !tables[m[1]] || slices.Contains(small, m[1]) || partial[m[2]] || scans[q.text] != "" {
				continue
			}
			t.Errorf("%s: %s\n%s", q.where, line, q.text)
		}
	}
}

// The queries for a message's page read only the last attempts of each delivery, by the key: they
// don't read all attempts.
func TestExplainAttempts(t *testing.T) {
	queries := slices.DeleteFunc(projectQueries(t), func(q namedQuery) bool {
		return q.where != filepath.Join("internal", "queue", "read.go") || !strings.Contains(q.text, "attempt AS a")
	})
	if len(queries) != 1 {
		t.Fatalf("%d queries read attempts", len(queries))
	}
	for engine, plan := range map[string]func(t *testing.T) (string, error){
		"sqlite": func(t *testing.T) (string, error) {
			url := dbtest.SQLite(t)
			dbtest.Open(t, url)
			conn := sqliteConn(t, url)
			plan, err := sqlitePlan(conn, queries[0].text)
			return strings.Join(plan, "\n"), err
		},
		"postgres": func(t *testing.T) (string, error) {
			url := dbtest.Postgres(t)
			dbtest.Open(t, url)
			return postgresPlan(t.Context(), plannerConn(t, url), 0, queries[0].text)
		},
	} {
		t.Run(engine, func(t *testing.T) {
			got, err := plan(t)
			if err != nil || !byKey.MatchString(got) {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}

var byKey = regexp.MustCompile(`SEARCH a USING PRIMARY KEY \(message=\? AND n=\? AND attempt>\?\)|Index Cond: .*\(n = d\.n\) AND \(attempt > `)

func errorsOf(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

func sqlitePlan(conn *sql.DB, text string) (plan []string, err error) {
	args := make([]any, argCount(text))
	rows, err := conn.Query("EXPLAIN QUERY PLAN "+db.Rendered(db.SQLite, text), args...)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		plan = append(plan, detail)
	}
	return plan, errorsOf(rows)
}

func argCount(text string) (n int) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		i, _ := strconv.Atoi(m[1])
		n = max(n, i)
	}
	return n
}

func explainPostgres(t *testing.T, queries []namedQuery) {
	url := dbtest.Postgres(t)
	dbtest.Open(t, url)
	ctx := context.Background()
	conn := plannerConn(t, url)
	for i, q := range queries {
		plan, err := postgresPlan(ctx, conn, i, q.text)
		if err != nil {
			t.Errorf("%s: %v\n%s", q.where, err, q.text)
			continue
		}
		for _, m := range postgresScan.FindAllStringSubmatch(plan, -1) {
			if !slices.Contains(small, m[1]) && scans[q.text] == "" {
				t.Errorf("%s: %s\n%s\n%s", q.where, m[0], q.text, plan)
			}
		}
		// The planner considers this cheap on tables that are empty, or were empty at the last
		// ANALYZE; with many rows it takes seconds.
		if !slices.Contains(compares, q.where) && changes.MatchString(plan) && strings.Contains(plan, "Join Filter") && chosen.MatchString(plan) {
			t.Errorf("%s: finds the rows that it changes by comparing all with those chosen\n%s\n%s", q.where, q.text, plan)
		}
	}
}

// The arguments of an INSERT of several rows have the types that they have in one.
func TestRowsTakeTheSame(t *testing.T) {
	url := dbtest.Postgres(t)
	dbtest.Open(t, url)
	conn := plannerConn(t, url)
	plain := 0
	for i, q := range projectQueries(t) {
		rows := db.SQL(q.text).Rows()
		if rows == nil {
			continue
		}
		plain++
		var one []uint32
		for j, text := range rows {
			d, err := conn.Prepare(t.Context(), fmt.Sprintf("rows%d_%d", i, j), text)
			if err != nil {
				t.Fatalf("%s: %v\n%s", q.where, err, text)
			}
			if j == 0 {
				one = d.ParamOIDs
			}
			if want := slices.Repeat(one, 1<<j); !slices.Equal(d.ParamOIDs, want) {
				t.Errorf("%s: of %d rows the types are %v, not %v\n%s", q.where, 1<<j, d.ParamOIDs, want, text)
			}
		}
	}
	if plain < 20 {
		t.Errorf("found %d plain INSERTs only", plain)
	}
}

// plannerConn returns a connection with the service's settings. Its plans, on empty tables, are
// those of a new service.
func plannerConn(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(cfg.RuntimeParams, db.SessionSettings)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing to lose
	return conn
}

func postgresPlan(ctx context.Context, conn *pgx.Conn, i int, text string) (string, error) {
	name := fmt.Sprintf("q%d", i)
	if _, err := conn.PgConn().Exec(ctx, "PREPARE "+name+" AS "+db.Rendered(db.Postgres, text)).ReadAll(); err != nil {
		return "", err
	}
	args := ""
	if n := argCount(text); n > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("NULL,", n), ",") + ")"
	}
	results, err := conn.PgConn().Exec(ctx, "EXPLAIN EXECUTE "+name+args).ReadAll()
	if err != nil {
		return "", err
	}
	var plan strings.Builder
	for _, row := range results[0].Rows {
		plan.Write(row[0])
		plan.WriteByte('\n')
	}
	return plan.String(), nil
}
