// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/queue"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"¡?! –":                           "",
		"Re: Your ORDER #42, order 42b":   "re your order 42 42b",
		"Straße STRASSE ｆｕｌｌ ﬁne":         "strasse full fine",
		"naïve cafe\u0301 e-mail it's_ok": "naïve café e mail it s ok",
		"ご注文 no.5 ありがとう":                  "ご 注 文 no 5 あ り が と う",
		"주문 확인":                           "주문 확인",
		"x\xffy\x00z":                     "x y z",
	} {
		if got := strings.Join(splitWords(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	many := ""
	for i := range 100 {
		many += fmt.Sprint(i, " ")
	}
	if got := splitWords(many); len(got) != maxSubjectWords || got[maxSubjectWords-1] != "31" {
		t.Errorf("of many: %q", got)
	}
}

func TestTerms(t *testing.T) {
	m := Message{
		From: `"Lee, Ann" <Ann@Shop.Example>`, Subject: "Hi Bob", Mailbox: 7,
		Metadata:   json.RawMessage(`{"order":42,"text":"a \"b\"","none":null,"yes":true,"list":[1],"in":{"x":1},"":""}`),
		Deliveries: []queue.DeliveryStatus{{Recipient: "Bob+x@EXAMPLE.org"}, {Recipient: "bob+x@example.org"}, {Recipient: "broken"}},
	}
	got := slices.Sorted(maps.Keys(messageTerms(m)))
	want := []string{
		"from-domain shop.example", "key ", "key in", "key list", "key none", "key order", "key text", "key yes", "mailbox " + m.Mailbox.String(),
		"recipient bob+x@example.org", "sender ann@shop.example", "to-domain example.org",
		"value \x00", "value none\x00null", "value order\x0042", "value text\x00a \"b\"", "value yes\x00true", "word bob", "word hi",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, broken := range []string{"", "{", "[]", "null", "5"} {
		if got := messageTerms(Message{Metadata: json.RawMessage(broken)}); len(got) != 0 {
			t.Errorf("%q: %v", broken, got)
		}
	}
}

// FuzzTerms: no header and no metadata make terms panic, or take many.
func FuzzTerms(f *testing.F) {
	f.Add("Ann <ann@shop.example>", "Your order 注文", `{"a":1,"b":{"c":[]}}`, "bob@example.org")
	f.Add("\"", "\xff\u0301", `{"":"\ud800"}`, "@")
	f.Fuzz(func(t *testing.T, from, subject, metadata, recipient string) {
		n := len(messageTerms(Message{From: from, Subject: subject, Metadata: json.RawMessage(metadata), Deliveries: []queue.DeliveryStatus{{Recipient: recipient}}}))
		if n > 2*maxSenderTerms+maxSubjectWords+2*maxMetadataKeys+2 {
			t.Errorf("%d terms", n)
		}
	})
}
