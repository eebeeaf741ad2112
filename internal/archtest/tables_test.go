// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// table says which packages may use a table: only its owner writes it, the readers may read it.
type table struct {
	owner   string
	readers []string
}

var (
	createTable = regexp.MustCompile(`(?i)^\s*CREATE\s+(?:VIRTUAL\s+|TEMP\s+|TEMPORARY\s+|UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([A-Za-z0-9_."]+)`)
	madeInCode  = regexp.MustCompile(`(?i)\bCREATE\s+(?:VIRTUAL\s+|TEMP\s+|TEMPORARY\s+|UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([A-Za-z0-9_."]+)`)
	ownerLine   = regexp.MustCompile(`^--\s*owner:\s*(\S+)\s*$`)
	readsLine   = regexp.MustCompile(`^--\s*reads:\s*(.+?)\s*$`)
	// A later migration can let another package read a table: `-- reads event: webhook`.
	readsTable = regexp.MustCompile(`^--\s*reads\s+([a-z_]+):\s*(\S+)\s*$`)
	// A literal that begins like this is SQL, anywhere in the code.
	statement = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|REPLACE|CREATE)\s`)
)

// TestTables checks that a package only uses its own tables, and those that it may read. The
// migrations name the owner and the readers of each in the comment right above it:
//
//	-- owner: queue
//	-- reads: outbound, api
//	CREATE TABLE delivery (
func TestTables(t *testing.T) {
	owners, bad := migrationTables(t)
	for _, complaint := range append(bad, checkTables(sources(t), owners)...) {
		t.Error(complaint)
	}
}

func migrationTables(t *testing.T) (owners map[string]table, bad []string) {
	t.Helper()
	owners = map[string]table{"schema_migration": {owner: "db"}} // created by the migration library
	dir := filepath.Join(root, "internal", "db", "migrations")
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return owners, nil
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".sql") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		bad = append(bad, readOwners(filepath.Base(path), string(text), owners)...)
		return nil
	})
	if err != nil {
		t.Fatalf("reading the migrations: %v", err)
	}
	return owners, bad
}

// readOwners adds the tables that one migration creates.
func readOwners(name, text string, owners map[string]table) (bad []string) {
	var above table // content of the comment lines right above
	for i, line := range strings.Split(text, "\n") {
		if m := ownerLine.FindStringSubmatch(line); m != nil {
			above.owner = m[1]
			continue
		}
		if m := readsLine.FindStringSubmatch(line); m != nil {
			above.readers = strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })
			continue
		}
		if m := readsTable.FindStringSubmatch(line); m != nil {
			t := owners[m[1]]
			if t.owner == "" || layers[m[2]] == 0 {
				bad = append(bad, fmt.Sprintf("%s:%d: %q may read %s, one of which does not exist", name, i+1, m[2], m[1]))
			}
			t.readers = append(slices.Clone(t.readers), m[2])
			owners[m[1]] = t
			continue
		}
		if strings.HasPrefix(line, "--") {
			continue
		}
		if m := createTable.FindStringSubmatch(line); m != nil {
			for _, pkg := range append([]string{above.owner}, above.readers...) {
				if layers[pkg] == 0 {
					bad = append(bad, fmt.Sprintf("%s:%d: table %s has %q for owner or reader, which is no pkg", name, i+1, m[1], pkg))
				}
			}
			owners[plain(m[1])] = above
		}
		above = table{}
	}
	return bad
}

func checkTables(files []source, owners map[string]table) []string {
	owners = maps.Clone(owners)
	shipped := slices.DeleteFunc(slices.Clone(files), func(s source) bool {
		return s.isTest() || isHelper(s.dir) || strings.HasPrefix(s.dir, "cmd/load") // it creates rows in all tables
	})
	consts := constants(shipped)
	type text struct {
		src  source
		node ast.Node
		sql  string
	}
	var texts []text
	for _, s := range shipped {
		for node, sql := range sqlTexts(s, consts[s.dir]) {
			texts = append(texts, text{s, node, sql})
			// A package owns the tables that it creates itself, outside the schema.
			for _, m := range madeInCode.FindAllStringSubmatch(sql, -1) {
				if name := plain(m[1]); owners[name].owner == "" {
					owners[name] = table{owner: packageOf(s.dir)}
				}
			}
		}
	}
	var bad []string
	for _, x := range texts {
		for _, u := range tablesOf(x.sql) {
			if why := misuse(packageOf(x.src.dir), u, owners); why != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %s", x.src.path, x.src.line(x.node), why))
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// misuse returns why the package must not use the table in this way; "" if it may.
func misuse(pkg string, u use, owners map[string]table) string {
	for _, engine := range []string{"sqlite_", "pg_", "information_schema"} {
		if strings.HasPrefix(u.table, engine) {
			if pkg == "db" {
				return ""
			}
			return fmt.Sprintf("%s is the engine's own, for db alone", u.table)
		}
	}
	owned, known := owners[u.table]
	switch {
	case pkg == "db" && u.table == " ? ": // snapshots contain the tables of all packages
		return ""
	case u.table == "":
		return "a table's name is not written out, so nobody sees whose it is"
	case !known:
		return fmt.Sprintf("no migration creates the table %s", u.table)
	case owned.owner == pkg:
		return ""
	case u.writes:
		return fmt.Sprintf("%s writes %s, which belongs to %s", pkg, u.table, owned.owner)
	case !slices.Contains(owned.readers, pkg):
		return fmt.Sprintf("%s reads %s, which belongs to %s and does not name it under reads", pkg, u.table, owned.owner)
	}
	return ""
}

// sqlTexts returns the argument of each db.SQL call, and every other literal that begins like a
// statement.
func sqlTexts(s source, consts map[string]string) map[ast.Node]string {
	texts := map[ast.Node]string{}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isSQLCall(s, n) {
				texts[n] = constant(n.Args[0], consts)
				return false
			}
		case *ast.BinaryExpr:
			if text := constant(n, consts); statement.MatchString(text) {
				texts[n] = text
				return false
			}
		case *ast.BasicLit:
			if text := constant(n, consts); statement.MatchString(text) {
				texts[n] = text
			}
		}
		return true
	})
	return texts
}

func isSQLCall(s source, call *ast.CallExpr) bool {
	if len(call.Args) != 1 {
		return false
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return (f.Name == "SQL" || f.Name == "PagedSQL") && s.dir == "internal/db"
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && x.Name == "db" && (f.Sel.Name == "SQL" || f.Sel.Name == "PagedSQL")
	}
	return false
}

// constant builds the text from literals and the package's constants. Parts that are only known at
// run time become a question mark.
func constant(e ast.Expr, consts map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			if text, err := strconv.Unquote(e.Value); err == nil {
				return text
			}
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return constant(e.X, consts) + constant(e.Y, consts)
		}
	case *ast.ParenExpr:
		return constant(e.X, consts)
	case *ast.Ident:
		if text, ok := consts[e.Name]; ok {
			return text
		}
	}
	return " ? "
}

// constants returns the string constants of each folder.
func constants(files []source) map[string]map[string]string {
	all := map[string]map[string]string{}
	// Twice, so that a constant that uses another one is found in any order.
	for range 2 {
		for _, s := range files {
			if all[s.dir] == nil {
				all[s.dir] = map[string]string{}
			}
			for _, d := range s.ast.Decls {
				gen, ok := d.(*ast.GenDecl)
				if !ok || gen.Tok != token.CONST {
					continue
				}
				for _, spec := range gen.Specs {
					value := spec.(*ast.ValueSpec)
					for i, name := range value.Names {
						if i < len(value.Values) {
							all[s.dir][name.Name] = constant(value.Values[i], all[s.dir])
						}
					}
				}
			}
		}
	}
	return all
}

func TestTablesBite(t *testing.T) {
	owners := map[string]table{}
	if bad := readOwners("1.sql", `
-- A delivery is a message on its way.
-- owner: queue
-- reads: outbound, api
CREATE TABLE delivery (
  id {id}
);

-- owner: mailbox
CREATE TABLE mailbox (id {id});
`, owners); len(bad) > 0 {
		t.Fatal(bad)
	}
	expectComplaint(t, readOwners("2.sql", "-- owner: queue\n\nCREATE TABLE lost (", map[string]table{}), `table lost has ""`)
	cases := []struct{ path, code, bad string }{
		{"internal/queue/a.go", "var a = db.SQL(`UPDATE delivery SET x = 1`)", ""},
		{"internal/outbound/a.go", "var a = db.SQL(`SELECT x FROM delivery`)", ""},
		{"internal/outbound/a.go", "var a = db.SQL(`DELETE FROM delivery`)", "outbound writes delivery"},
		{"internal/folder/a.go", "var a = db.SQL(`SELECT x FROM delivery`)", "folder reads delivery"},
		{"internal/folder/a.go", "const c = ` FROM mailbox`\nvar a = db.SQL(`SELECT x` + c)", "folder reads mailbox"},
		{"internal/folder/a.go", "var a = query(`SELECT x FROM mailbox`)", "folder reads mailbox"},
		{"internal/folder/a.go", "var a = db.SQL(`SELECT x FROM mailbux`)", "no migration creates"},
		{"internal/folder/a.go", "var a = db.SQL(`SELECT x FROM ` + name)", "not written out"},
		{"internal/folder/a.go", "var a = db.SQL(`SELECT x FROM pg_class`)", "engine's own"},
		{"internal/folder/a_test.go", "var a = db.SQL(`SELECT x FROM mailbox`)", ""},
		{"internal/fulltext/a.go", "const a = `CREATE VIRTUAL TABLE word USING fts5(x)`\nvar b = db.SQL(a)\nvar c = db.SQL(`SELECT x FROM word`)", ""},
		{"internal/db/a.go", "var a = SQL(`SELECT x FROM mailbox`)", "db reads mailbox"},
		{"internal/imapd/a.go", "var a = `SELECT INBOX`", ""},
	}
	for _, c := range cases {
		t.Run(c.path+" "+c.code, func(t *testing.T) {
			expectComplaint(t, checkTables([]source{mustParse(t, c.path, "package x\n"+c.code+"\n")}, owners), c.bad)
		})
	}
}
