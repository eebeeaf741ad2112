// SPDX-License-Identifier: Apache-2.0

// Package messagetest provides header fields for the tests of several packages.
package messagetest

import (
	_ "embed"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

//go:embed from.tsv
var fromTable string

// From is the value of a From field, and its author problem.
type From struct {
	Value   string
	Problem message.AuthorProblem
}

// Froms returns some hundred From fields, ordinary and hostile. Authors without a problem are at
// own.test.
func Froms(t testing.TB) (all []From) {
	t.Helper()
	for line := range strings.Lines(fromTable) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		doubt, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		value, err := strconv.Unquote(text)
		if !ok || err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if doubt == "ok" {
			doubt = ""
		}
		all = append(all, From{value, message.AuthorProblem(doubt)})
	}
	return all
}
