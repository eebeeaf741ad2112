// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The kept and removed lines of a diff are the old text; the kept and added lines are the new one.
func TestDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 1, 12)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		var old, now []string
		for _, c := range diffLines(a, b) {
			if c.Mark != "+" {
				old = append(old, c.Text)
			}
			if c.Mark != "-" {
				now = append(now, c.Text)
			}
		}
		if strings.Join(old, "\n") != strings.Join(a, "\n") || strings.Join(now, "\n") != strings.Join(b, "\n") {
			t.Fatalf("%q and %q: %q", a, b, diffLines(a, b))
		}
	})
	show := func(old, now string) string {
		var out []string
		for _, c := range diff(old, now) {
			out = append(out, c.Mark+c.Text)
		}
		return strings.Join(out, "|")
	}
	for _, c := range [][3]string{
		{"a\nb\n", "a\nb\n", ""},
		{"", "a\nb", "+a|+b"},
		{"a\nb\nc", "a\nx\nc", " a|-b|+x| c"},
		{"1\n2\n3\n4\n5\n6\n7\n8\na\n1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n6\n7\n8\nb\n1\n2\n3\n4\n5\n6", "…5 equal lines| 6| 7| 8|-a|+b| 1| 2| 3|…3 equal lines"},
	} {
		if got := show(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: %s, want %s", c[0], c[1], got, c[2])
		}
	}
	if got := diff(strings.Repeat("a\nb\n", 2000), strings.Repeat("b\nc\n", 2000)); len(got) == 0 {
		t.Error("nothing differs")
	}
}
