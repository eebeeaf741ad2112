// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// skipper is the only file that may skip a test, for want of another program. It fails the test
// instead in `make test` and the CI, so that these skip none.
const skipper = "internal/needtest/needtest.go"

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

func TestHygiene(t *testing.T) {
	for _, s := range sources(t) {
		for _, complaint := range checkHygiene(s) {
			t.Error(complaint)
		}
	}
}

func checkHygiene(s source) []string {
	var bad []string
	complain := func(n ast.Node, what string) {
		bad = append(bad, fmt.Sprintf("%s:%d: %s", s.path, s.line(n), what))
	}
	if !strings.HasPrefix(s.text, "// SPDX-License-Identifier: Apache-2.0\n\n") {
		complain(s.ast, "does not begin with the SPDX line and an empty one")
	}
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			complain(f, "init() works behind the reader's back; let a constructor do it")
		}
	}
	for _, group := range s.ast.Comments {
		if unfinished.MatchString(group.Text()) {
			complain(group, "an unfinished part; finish it or open an issue")
		}
	}
	if s.isTest() || isHelper(s.dir) {
		checkTestCalls(s, complain)
	}
	return bad
}

// checkTestCalls reports calls that sleep or skip in tests and their helpers.
func checkTestCalls(s source, complain func(ast.Node, string)) {
	testers := testerNames(s.ast)
	ast.Inspect(s.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		var of string // the variable, or its field
		switch x := sel.X.(type) {
		case *ast.Ident:
			of = x.Name
		case *ast.SelectorExpr:
			of = x.Sel.Name
		}
		switch sel.Sel.Name {
		case "Sleep":
			if of == "time" {
				complain(sel, "time.Sleep in a test; wait for a signal")
			}
		case "Skip", "Skipf", "SkipNow":
			if testers[of] && s.path != skipper {
				complain(sel, "a skipped test; call needtest for a missing program")
			}
		}
		return true
	})
}

// testerNames returns the names of the parameters and fields of type *testing.T, B or F, or
// testing.TB in the file. An embedded one has the name of its type.
func testerNames(file *ast.File) map[string]bool {
	names := map[string]bool{"T": true, "B": true, "F": true, "TB": true}
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		typ := field.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		sel, ok := typ.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "testing" {
			for _, name := range field.Names {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

func TestHygieneBites(t *testing.T) {
	const spdx = "// SPDX-License-Identifier: Apache-2.0\n\npackage x\n"
	cases := []struct{ name, path, text, bad string }{
		{"clean", "internal/x/a.go", spdx, ""},
		{"no licence", "internal/x/a.go", "package x\n", "SPDX"},
		{"init", "internal/x/a.go", spdx + "func init() {}\n", "init()"},
		{"init method", "internal/x/a.go", spdx + "type a int\nfunc (a) init() {}\n", ""},
		{"unfinished", "internal/x/a.go", spdx + "// TO" + "DO: more\n", "unfinished"},
		{"sleep in code", "internal/x/a.go", spdx + "import \"time\"\nvar a = time.Sleep\n", ""},
		{"sleep in test", "internal/x/a_test.go", spdx + "import \"time\"\nfunc a() { time.Sleep(1) }\n", "time.Sleep"},
		{"sleep in helper", "internal/x/xtest/a.go", spdx + "import \"time\"\nfunc a() { time.Sleep(1) }\n", "time.Sleep"},
		{"skip", "internal/x/a_test.go", spdx + "import \"testing\"\nfunc a(tt *testing.T) { tt.Skip() }\n", "skipped"},
		{"skip in fuzz", "internal/x/a_test.go", spdx + "import \"testing\"\nfunc a(f testing.TB) { f.SkipNow() }\n", "skipped"},
		{"skip by a field", "internal/x/a_test.go", spdx + "import \"testing\"\ntype b struct{ t testing.TB }\nfunc a(x b) { x.t.Skip() }\n", "skipped"},
		{"skip by an embedded field", "internal/x/a_test.go", spdx + "import \"testing\"\ntype b struct{ *testing.T }\nfunc a(x b) { x.T.Skip() }\n", "skipped"},
		{"skip in a helper", "internal/x/xtest/a.go", spdx + "import \"testing\"\nfunc a(t testing.TB) { t.Skipf(\"\") }\n", "skipped"},
		{"skip in the one place", skipper, spdx + "import \"testing\"\nfunc a(t testing.TB) { t.Skipf(\"\") }\n", ""},
		{"another Skip", "internal/x/a_test.go", spdx + "func a(r reader) { r.Skip() }\n", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			expectComplaint(t, checkHygiene(mustParse(t, c.path, c.text)), c.bad)
		})
	}
}
