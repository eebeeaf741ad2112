// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	for _, x := range []struct {
		reference, pattern, name string
		want                     bool
	}{
		{"", "*", "a/b/c", true},
		{"", "%", "a", true},
		{"", "%", "a/b", false},
		{"", "a/%", "a/b", true},
		{"", "a/%", "a/b/c", false},
		{"a/", "*", "a/b/c", true},
		{"", "%/%", "a/b", true},
		{"", "%/c", "a/b/c", false},
		{"", "*/c", "a/b/c", true},
		{"", "*%c", "a/b/c", true},
		{"", "%*c", "a/b/c", true},
		{"", "%b%d", "abcd", true},
		{"", "a%b*c", "axb/yc", true},
		{"", "inbox", "INBOX", true},
		{"", "Inbox/%", "INBOX/x", true},
		{"", "inboxes", "INBOX", false},
		{"", "work", "Work", false},
		{"", "", "", true},
		{"", "a", "", false},
		{"", "*", "", true},
	} {
		if got := newPattern(x.reference, x.pattern).matches(x.name); got != x.want {
			t.Errorf("%q + %q on %q: %v", x.reference, x.pattern, x.name, got)
		}
	}
}

// A pattern designed to be slow is fast.
func TestPatternBomb(t *testing.T) {
	name := strings.Repeat("a", 1000)
	for _, p := range []string{strings.Repeat("*a", 900) + "b", strings.Repeat("*%", 30_000) + "b", strings.Repeat("%a", 999) + "%b"} {
		if newPattern("", p).matches(name) {
			t.Error("matches")
		}
	}
}

// TestPatternSlowly compares with a backtracking implementation.
func TestPatternSlowly(t *testing.T) {
	var slowly func(p, name string) bool
	slowly = func(p, name string) bool {
		switch {
		case p == "":
			return name == ""
		case p[0] != '*' && p[0] != '%':
			return name != "" && name[0] == p[0] && slowly(p[1:], name[1:])
		case slowly(p[1:], name):
			return true
		}
		return name != "" && (p[0] == '*' || name[0] != separator) && slowly(p, name[1:])
	}
	r := rand.New(rand.NewPCG(1, 1))
	some := func(of string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = of[r.IntN(len(of))]
		}
		return string(b)
	}
	matched := 0
	for range 3_000 {
		name := strings.Repeat("a", r.IntN(2)*(55+r.IntN(75))) + some("ab/", r.IntN(12))
		p := strings.Repeat("a", r.IntN(60)) + some("ab/*%*%", r.IntN(5))
		want := slowly(p, name)
		if want {
			matched++
		}
		if got := pattern(p).matches(name); got != want {
			t.Fatalf("%q on %q: %v", p, name, got)
		}
	}
	if matched < 50 {
		t.Errorf("only %d match", matched)
	}
}
