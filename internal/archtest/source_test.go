// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mailstead/mailstead"

// source is one Go file of the repository.
type source struct {
	path string // slash-separated, relative to the repository's root
	dir  string
	text string
	ast  *ast.File
	fset *token.FileSet
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(n ast.Node) int { return s.fset.Position(n.Pos()).Line }

func (s source) isGenerated() bool { return ast.IsGenerated(s.ast) }

// imports lists the directories of this module's packages that the file imports.
func (s source) imports() []string {
	var dirs []string
	for _, spec := range s.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if path == module {
			dirs = append(dirs, ".")
		} else if dir, ours := strings.CutPrefix(path, module+"/"); ours {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// root is the repository's root, relative to this package's folder.
const root = "../.."

// sources parses every Go file of the repository, with any build tags.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		s, err := parse(rel, string(text))
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatalf("reading the repository's Go files: %v", err)
	}
	if !slices.ContainsFunc(all, func(s source) bool { return s.path == "internal/archtest/source_test.go" }) {
		t.Fatalf("%s is not the repository's root", root)
	}
	return all
}

func parse(path, text string) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	dir := "."
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir = path[:i]
	}
	return source{path: path, dir: dir, text: text, ast: file, fset: fset}, nil
}
