// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

func TestCleanText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 5, ""},
		{"text", 5, "text"},
		{"a\x00b", 5, "ab"},
		{"a\xff\xfeb", 5, "a\uFFFDb"},
		{"\x00a\x00b\x00c", 2, "ab"},
		{"aäb", 2, "a"},
		{"aäb", 3, "aä"},
		{"ab\xff", 4, "ab"},                 // the replacement is longer, and may not exceed the limit
		{"\xc3\x00\xa4", 9, "\uFFFD\uFFFD"}, // removing NUL makes no character
	} {
		if got := db.CleanText(c.in, c.limit); got != c.want {
			t.Errorf("CleanText(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}
