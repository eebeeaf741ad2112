// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/message/messagetest"
)

// A user can't sign as another, nor as an address that a reader may take for another.
func TestCheckAuthor(t *testing.T) {
	o := &Outbox{Mailboxes: mailbox.Open(mailbox.Options{
		FindHosted: func(_ context.Context, name string) (domain.HostedDomain, bool, error) {
			return domain.HostedDomain{Domain: 7, Account: 1}, name == "demo.test", nil
		},
	})}
	bob := mailbox.Mailbox{Account: 2, Domain: 8, Address: "bob@demo.test"}
	for header, want := range map[string]fault.Kind{
		"From: bob@demo.test": 0,
		"from : \"Smith, Bob (\\\"B\\\")\" <BOB+x@Demo.Test> (me)":                0,
		"From: bob@demo.test,\r\n Bob <bob+2@demo.test>\r\nSender: bob@demo.test": 0,
		"From: bob@demo.test,\r\n Bob <bob+2@demo.test>":                          fault.Invalid,
		"From: us: bob@demo.test;":                                                fault.Invalid,
		"From: =?utf-8?q?B=C3=B6b?= <bob@demo.test>":                              0,
		"From: bob@demo.test\r\nSender: <bob@demo.test>":                          0,
		"From: alice@demo.test":                                                   fault.Denied,
		"From: bob@demo.test, alice@demo.test\r\nSender: bob@demo.test":           fault.Denied,
		"From: bob@demo.test, alice@victim.test\r\nSender: bob@demo.test":         fault.Denied,
		"From: us: bob@demo.test, alice@demo.test;":                               fault.Invalid,
		"From: bob@demo.test (x), alice@victim.test":                              fault.Denied,
		"From: =?utf-8?q?bob?=@demo.test":                                         fault.Invalid,
		"From: \"bob@demo.test\"@victim.test":                                     fault.Invalid,
		"From: alice@demo.test bob@demo.test":                                     fault.Invalid,
		"From: bob@demo.test\r\nSender: alice@demo.test":                          fault.Denied,
		"From: bob@demo.test\r\nfrom : alice@demo.test":                           fault.Invalid,
		"From: us:;": fault.Invalid,
		"From: <bob@demo.test> <alice@demo.test>":              fault.Invalid,
		"From: <bob@demo.test> alice@demo.test":                fault.Invalid,
		"From: <bob@demo.test":                                 fault.Invalid,
		"From: bob@demo.test>":                                 fault.Invalid,
		"From: <<bob@demo.test>":                               fault.Invalid,
		"From: <@victim.test:bob@demo.test>":                   fault.Invalid,
		"From: <alice@victim.test, bob@demo.test>":             fault.Invalid,
		"From: bob@demo.test (alice":                           fault.Invalid,
		"From: bob@demo.test \"alice":                          fault.Invalid,
		"From: bob@demo.test\r\nFrom\x00: alice@victim.test":   fault.Invalid,
		"From: bob@demo.test\r\nSender: <bob@demo.test> alice": fault.Invalid,
		"From: bob@demo.test" + strings.Repeat(",x:;", message.MaxAddresses) + ",alice@victim.test": fault.Invalid,
	} {
		signs, err := o.authorizeMailboxAuthor(t.Context(), bob, message.Header(header+"\r\n\r\n"))
		if want == 0 && (err != nil || signs != bob.Domain) || want != 0 && !fault.Is(err, want) {
			t.Errorf("%.80q: %v", header, err)
		}
	}
}

// Headers that mail readers interpret differently are rejected, and others are not.
func TestAuthorsOfTable(t *testing.T) {
	for _, from := range messagetest.Froms(t) {
		if strings.Contains(strings.ReplaceAll(from.Value, "\r\n", ""), "\n") {
			continue // NormalizeLineEnds makes two fields of it
		}
		for _, sender := range []string{"", "\r\nSender: ann@own.test"} {
			all, err := headerAuthors(message.Header("From: " + from.Value + sender + "\r\n\r\n"))
			var f *fault.Error
			several := sender == "" && strings.Contains(from.Value, ",") && errors.As(err, &f) && f.Code == "sender_required"
			odd := errors.As(err, &f) && f.Code == senderDenied.Code // no mailbox here has such an address
			switch {
			case from.Problem == "" && !several && !odd && (err != nil || len(all) == 0):
				t.Errorf("%q is refused: %v", from.Value, err)
			case from.Problem != "" && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Denied):
				t.Errorf("%q is accepted", from.Value)
			}
		}
	}
}

// A name in a send that shows another address is reported with its field.
func TestNameShowsAddress(t *testing.T) {
	for name, want := range map[string]string{
		"Ann": "", "Lee, Ann": "", "Ann \"A\" Lee": "", "O'Lee": "", "Ännë": "", "山田太郎": "", "Ann @ Shop": "", "a@shop.example": "", "'a@shop.example'": "", "A@Shop.Example": "",
		"Ann via Shop": "", strings.Repeat("long ", 60): "", "<Ann>": "", "Ann\\": "", "a:b;c": "", "(x": "", "=?": "", "=?x?=": "",
		"ceo@victim.test": "from_name", "\"ceo@victim.test\"": "from_name", "CEO <ceo@victim.test>": "from_name", "Ä ceo@victim.test": "from_name", "ceo＠victim.test": "from_name",
		"=?utf-8?q?ceo=40victim.test?=": "", "b@shop.example": "from_name", "ceo@victim.test via Shop": "from_name",
	} {
		s := good()
		s.FromEmail, s.FromName = "a@shop.example", name
		l, bad := s.validate(today)
		got := ""
		if len(bad) > 0 {
			got = bad[0].Path
		}
		if got != want || len(bad) > 1 {
			t.Errorf("%q: %v", name, bad)
		}
		if want != "" {
			continue
		}
		var out strings.Builder
		if _, err := message.Compose(&out, &l.draft); err != nil {
			t.Fatal(err)
		}
		if doubt := message.Header(out.String()).Authors().Problem; doubt != "" {
			t.Errorf("%q: %s", name, doubt)
		}
	}
}
