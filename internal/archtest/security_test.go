// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest    = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	declaredTest = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// TestSecurityPromises checks that each promise of SECURITY.md names tests, and that they exist.
func TestSecurityPromises(t *testing.T) {
	const root = "../.."
	declared := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declaredTest.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, promises, _ := strings.Cut(string(text), "### Promises and their tests")
	promises, _, found := strings.Cut(promises, "### ")
	rows := 0
	for line := range strings.Lines(promises) {
		promise, tests, ok := strings.Cut(strings.Trim(line, "| \n"), "|")
		if !ok || strings.HasPrefix(promise, "---") || strings.HasPrefix(promise, "promise ") {
			continue
		}
		rows++
		names := namedTest.FindAllStringSubmatch(tests, -1)
		if len(names) == 0 {
			t.Errorf("SECURITY.md: no test checks: %s", promise)
		}
		for _, m := range names {
			if !declared[m[1]] {
				t.Errorf("SECURITY.md: there is no test %s", m[1])
			}
		}
	}
	if !found || rows < 5 {
		t.Fatalf("SECURITY.md: %d promises found", rows)
	}
}
