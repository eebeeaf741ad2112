// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// From the first size on, `make sizes` lists a file or function; above the second, the test fails.
// Tests have no limit.
const (
	longFile, tooLongFile = 500, 700
	longFunc, tooLongFunc = 80, 120
)

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || s.isGenerated() {
			continue
		}
		if n := strings.Count(s.text, "\n"); n > tooLongFile {
			t.Errorf("%s: %d lines, at most %d", s.path, n, tooLongFile)
		} else if n > longFile {
			t.Logf("%s: %d lines", s.path, n)
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first := s.line(f)
			n := s.fset.Position(f.End()).Line - first + 1
			if n > tooLongFunc {
				t.Errorf("%s:%d: %s has %d lines, at most %d", s.path, first, f.Name.Name, n, tooLongFunc)
			} else if n > longFunc {
				t.Logf("%s:%d: %s has %d lines", s.path, first, f.Name.Name, n)
			}
		}
	}
}
