// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

func TestBaseSubject(t *testing.T) {
	for _, x := range []struct {
		subject, base string
		reply         bool
	}{
		{"", "", false},
		{" \t ", "", false},
		{"Lunch", "Lunch", false},
		{"two\t  words\r\n here", "two words here", false},
		{"Re: Lunch", "Lunch", true},
		{"rE :Lunch", "Lunch", true},
		{"re[2]: re [x]: FW: fwd : Lunch", "Lunch", true},
		{"Re:", "", true},
		{"Regards", "Regards", false},
		{"Fwdlike", "Fwdlike", false},
		{"AW: Lunch", "AW: Lunch", false},
		{"Lunch (fwd)", "Lunch", true},
		{"Lunch (FWD) (fwd)(fwd) ", "Lunch", true},
		{"(fwd)", "", true},
		{"[list] Lunch", "Lunch", false},
		{"[list]", "[list]", false},
		{"[a] [b][c]", "[c]", false},
		{"[a] [b] Re: [c] Lunch", "Lunch", true},
		{"Re: [list]", "[list]", true},
		{"[list] Re:", "", true},
		{"[fwd: Lunch]", "Lunch", true},
		{"[Fwd: Re: [fwd: [x] Lunch (fwd)] (fwd)] ", "Lunch", true},
		{"[fwd: Lunch", "[fwd: Lunch", false},
		{"[a[b] Lunch", "[a[b] Lunch", false},
		{"[fwd:]", "", true},
		{"Re: [fwd", "[fwd", true},
		{"Grüße [x]", "Grüße [x]", false},
	} {
		if base, reply := message.BaseSubject(x.subject); base != x.base || reply != x.reply {
			t.Errorf("%q: got %q, %v; want %q, %v", x.subject, base, reply, x.base, x.reply)
		}
	}
}

// None of these may take more than a moment.
func TestBaseSubjectIsLinear(t *testing.T) {
	const n = 200_000
	for _, s := range []string{
		strings.Repeat("[a]", n), strings.Repeat("[a", n), strings.Repeat("[fwd:", n) + strings.Repeat("]", n), strings.Repeat("re[", n),
		strings.Repeat("[a]", n) + "x", strings.Repeat("(fwd)", n), strings.Repeat("re: [x] ", n), strings.Repeat("[", n) + strings.Repeat("]", n),
	} {
		message.BaseSubject(s)
	}
}

func TestCollate(t *testing.T) {
	words := []string{"zebra", "Ärger", "apple", "Äpfel", "BANANA", "ﬁsh", "fish", "ǆ", "STRASSE"}
	slices.SortStableFunc(words, func(a, b string) int { return strings.Compare(message.CollationKey(a), message.CollationKey(b)) })
	// A decomposed Ä is an A and another character; the decomposition of a ligature keeps its case.
	if got := strings.Join(words, " "); got != "apple Äpfel Ärger BANANA ǆ fish STRASSE zebra ﬁsh" {
		t.Errorf("got %s", got)
	}
}

func FuzzBaseSubject(f *testing.F) {
	for _, s := range []string{"Re: [a] fwd [b]: x (fwd)", "[fwd: re: [x]]", "[a][b]", "[fwd:]", "\tre\r\n :"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		base, _ := message.BaseSubject(s)
		if len(base) > len(s) {
			t.Fatalf("%q became %q", s, base)
		}
		if again, reply := message.BaseSubject(base); again != base || reply {
			t.Fatalf("%q became %q, and that %q", s, base, again)
		}
	})
}
