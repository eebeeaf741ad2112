// SPDX-License-Identifier: Apache-2.0

package thread

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

func TestAnswers(t *testing.T) {
	many := strings.Repeat(" <x%d@a.example>", 40)
	var numbers []any
	for i := range 40 {
		numbers = append(numbers, i)
	}
	for header, want := range map[string]string{
		"":                                       "",
		"In-Reply-To: <c@x>\r\n":                 "<c@x>",
		"References: <a@x> <b@x>\r\n\t<c@x>\r\n": "<c@x> <b@x> <a@x>",
		"In-Reply-To: Bob's mail of <b@x>\r\nReferences: <a@x> <b@x> <c@x>\r\n": "<b@x> <c@x> <a@x>",
		"In-Reply-To: no id\r\nReferences: garbage > < <<a@x>>>\r\n":            "<a@x>",
		"References:" + fmt.Sprintf(many, numbers...) + "\r\n":                  "20",
	} {
		got := RepliedIDs(message.Header(header))
		if want == "20" {
			if len(got) != MaxRepliedIDs || got[0] != "<x39@a.example>" {
				t.Errorf("of many: %q", got)
			}
		} else if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func TestReferences(t *testing.T) {
	chain := func(n int) (links []Message) {
		for i := range n {
			links = append(links, Message{db.ID(i), fmt.Sprintf("<%d@x>", i)})
		}
		return links
	}
	for _, c := range []struct {
		chain  []Message
		parent string
		want   []string
	}{
		{nil, "", nil},
		{nil, "<p@x>", []string{"<p@x>"}},
		{chain(2), "", []string{"<0@x>", "<1@x>"}},
		{chain(3), "<1@x>", []string{"<0@x>", "<2@x>", "<1@x>"}},
		{append(chain(2), Message{7, "<0@x>"}, Message{8, ""}, Message{9, "<ü@x>"}, Message{10, "<a b@x>"}), "", []string{"<0@x>", "<1@x>"}},
	} {
		if got := buildReferences(c.chain, c.parent); !slices.Equal(got, c.want) {
			t.Errorf("%v answering %s: %q, want %q", c.chain, c.parent, got, c.want)
		}
	}
	long := buildReferences(chain(50), "<p@x>")
	if len(long) != MaxReferences || long[0] != "<0@x>" || long[1] != "<32@x>" || long[19] != "<p@x>" {
		t.Errorf("of a long thread: %q", long)
	}
}

// A key is never 0, which means none. It is the same for the Message-ID as stored after invalid
// UTF-8 was replaced.
func TestKey(t *testing.T) {
	if LookupKey("<a@x>") == LookupKey("<b@x>") || LookupKey("") <= 0 || LookupKey("<\xff@x>") != LookupKey("<\uFFFD@x>") {
		t.Error("keys are mixed up")
	}
}
