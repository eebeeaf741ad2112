// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// Nobody signs as another, nor as what a reader may take for another.
func TestCheckAuthor(t *testing.T) {
	o := &Outbox{Mailboxes: mailbox.Open(mailbox.Options{
		Hosted: func(_ context.Context, name string) (domain.Hosted, bool, error) {
			return domain.Hosted{Domain: 7, Account: 1}, name == "demo.test", nil
		},
	})}
	bob := mailbox.Mailbox{Account: 2, Domain: 8, Address: "bob@demo.test"}
	for header, want := range map[string]fault.Kind{
		"From: bob@demo.test": 0,
		"from : \"Smith, Bob (\\\"B\\\")\" <BOB+x@Demo.Test> (me)": 0,
		"From: bob@demo.test,\r\n Bob <bob+2@demo.test>":           0,
		"From: us: bob@demo.test;":                                 0,
		"From: =?utf-8?q?B=C3=B6b?= <bob@demo.test>":               0,
		"From: bob@demo.test\r\nSender: <bob@demo.test>":           0,
		"From: alice@demo.test":                                    fault.Denied,
		"From: bob@demo.test, alice@demo.test":                     fault.Denied,
		"From: us: bob@demo.test, alice@demo.test;":                fault.Denied,
		"From: bob@demo.test (x), alice@victim.test":               fault.Denied,
		"From: =?utf-8?q?bob?=@demo.test":                          fault.Denied,
		"From: \"bob@demo.test\"@victim.test":                      fault.Denied,
		"From: alice@demo.test bob@demo.test":                      fault.Invalid,
		"From: bob@demo.test\r\nSender: alice@demo.test":           fault.Denied,
		"From: bob@demo.test\r\nfrom : alice@demo.test":            fault.Invalid,
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
		signs, err := o.checkAuthor(t.Context(), bob, message.Header(header+"\r\n\r\n"))
		if want == 0 && (err != nil || signs != bob.Domain) || want != 0 && !fault.Is(err, want) {
			t.Errorf("%.80q: %v", header, err)
		}
	}
}
