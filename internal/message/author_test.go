// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

// fromValues reads testdata/authors/from.tsv: values of From fields by what is to be
// made of them.
func fromValues(t testing.TB) (values, wants []string) {
	t.Helper()
	table, err := os.ReadFile("testdata/authors/from.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		want, text, ok := strings.Cut(line, "\t")
		value, err := strconv.Unquote(text)
		if !ok || err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		values, wants = append(values, value), append(wants, strings.TrimSuffix(want, "ok"))
	}
	return values, wants
}

func TestAuthors(t *testing.T) {
	values, wants := fromValues(t)
	if len(values) < 150 {
		t.Errorf("%d values", len(values))
	}
	for n, value := range values {
		a := message.ReadAuthors([][]byte{[]byte(value)})
		if string(a.Doubt) != wants[n] {
			t.Errorf("%q: %q %+v, want %q", value, a.Doubt, a.List, wants[n])
		}
		if a.Doubt != "" {
			continue
		}
		for _, one := range a.List {
			if !strings.EqualFold(strings.TrimSuffix(one.Domain, "."), "own.test") {
				t.Errorf("%q: from %s", value, one)
			}
		}
	}
}
