// SPDX-License-Identifier: Apache-2.0

package imapd

import (
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

// A pattern that was made to be slow is not.
func TestPatternBomb(t *testing.T) {
	name := strings.Repeat("a", 1000)
	for _, p := range []string{strings.Repeat("*a", 900) + "b", strings.Repeat("*%", 30_000) + "b", strings.Repeat("%a", 999) + "%b"} {
		if newPattern("", p).matches(name) {
			t.Error("matches")
		}
	}
}
