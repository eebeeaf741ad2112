// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func addr(t *testing.T, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A mailbox submits as itself and its plus-addresses only, in the envelope and
// in every author that the header names.
func TestSubmitAuthors(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, err := s.Mailboxes.ByID(t.Context(), s.Dev.Mailboxes[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]struct {
			envelope, header string
			kind             fault.Kind
			accepted         bool
		}{
			"itself":                 {"alice@demo.test", "From: alice@demo.test", 0, true},
			"in other case":          {"Alice@DEMO.test", "FROM: Alice <ALICE@demo.test>", 0, true},
			"a plus-address":         {"alice+shop@demo.test", "From: alice+list@demo.test", 0, true},
			"the null sender":        {"", "From: alice@demo.test", 0, true},
			"itself as sender":       {"alice@demo.test", "From: alice@demo.test\r\nSender: alice@demo.test", 0, true},
			"another's envelope":     {"bob@demo.test", "From: alice@demo.test", fault.Denied, false},
			"another":                {"alice@demo.test", "From: bob@demo.test", fault.Denied, false},
			"another beside":         {"alice@demo.test", "From: alice@demo.test, bob@demo.test\r\nSender: alice@demo.test", fault.Denied, false},
			"several, and who sends": {"alice@demo.test", "From: alice@demo.test, alice+x@demo.test\r\nSender: alice@demo.test", 0, true},
			"several, and nobody":    {"alice@demo.test", "From: alice@demo.test, alice+x@demo.test", fault.Invalid, false},
			"two senders":            {"alice@demo.test", "From: alice@demo.test\r\nSender: alice@demo.test\r\nSender: alice@demo.test", fault.Invalid, false},
			"several in Sender":      {"alice@demo.test", "From: alice@demo.test\r\nSender: alice@demo.test, alice+x@demo.test", fault.Invalid, false},
			"a group and own Sender": {"alice@demo.test", "From: us: ceo@victim.example;\r\nSender: alice@demo.test", fault.Invalid, false},
			"own group, own Sender":  {"alice@demo.test", "From: us: alice@demo.test;\r\nSender: alice@demo.test", fault.Invalid, false},
			"Sender alone":           {"alice@demo.test", "Sender: alice@demo.test", fault.Invalid, false},
			"another's name":         {"alice@demo.test", "From: \"ceo@victim.example\" <alice@demo.test>", fault.Denied, false},
			"another for a name":     {"alice@demo.test", "From: ceo@victim.example <alice@demo.test>", fault.Invalid, false},
			"another and a slash":    {"alice@demo.test", "From: ceo@victim.example\\<alice@demo.test>", fault.Invalid, false},
			"Sender's other name":    {"alice@demo.test", "From: alice@demo.test\r\nSender: \"ceo@victim.example\" <alice@demo.test>", fault.Denied, false},
			"the address as name":    {"alice@demo.test", "From: \"Alice@Demo.test\" <alice@demo.test>", 0, true},
			"a comma in the name":    {"alice@demo.test", "From: Lee, Alice <alice@demo.test>", 0, true},
			"another as sender":      {"alice@demo.test", "From: alice@demo.test\r\nSender: bob@demo.test", fault.Denied, false},
			"null, and another":      {"", "From: bob@demo.test", fault.Denied, false},
			"a name that looks so":   {"alice@demo.test", "From: \"alice@demo.test\" <bob@demo.test>", fault.Denied, false},
			"a group":                {"alice@demo.test", "From: us: alice@demo.test, bob@demo.test;", fault.Invalid, false},
			"a sub-domain":           {"alice@demo.test", "From: alice@sub.demo.test", fault.Denied, false},
			"no author":              {"alice@demo.test", "Subject: x", fault.Invalid, false},
			"two From fields":        {"alice@demo.test", "From: alice@demo.test\r\nFrom: bob@demo.test", fault.Invalid, false},
			"two From, one in other": {"alice@demo.test", "From: alice@demo.test\r\nfrom : bob@demo.test", fault.Invalid, false},
			"an empty From":          {"alice@demo.test", "From: ", fault.Invalid, false},
			"a From without address": {"alice@demo.test", "From: Alice", fault.Invalid, false},
			"going on with ours":     {"alice@demo.test", " of another\r\nFrom: alice@demo.test", fault.Invalid, false},
			"going on after nothing": {"alice@demo.test", "\t\nFrom: alice@demo.test", fault.Invalid, false},
		} {
			sub := outbound.Submission{To: []outbound.Rcpt{{Address: addr(t, "bob@demo.test")}}, Received: message.Received{By: "localhost", With: "ESMTPSA"}}
			if c.envelope != "" {
				from := addr(t, c.envelope)
				sub.From = &from
			}
			_, err := s.Outbox.Submit(t.Context(), alice, sub, strings.NewReader(c.header+"\r\n\r\nHi\r\n"))
			if c.accepted != (err == nil) || err != nil && fault.KindOf(err) != c.kind {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// Each address of an envelope has one delivery, and a blind one is told from
// those that the header names.
func TestSubmitRecipients(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, err := s.Mailboxes.ByID(t.Context(), s.Dev.Mailboxes[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		from := addr(t, "alice@demo.test")
		sub := outbound.Submission{From: &from, Received: message.Received{By: "localhost", With: "ESMTPSA"}, To: []outbound.Rcpt{
			{Address: addr(t, "a@simulator.test")}, {Address: addr(t, "b@simulator.test")}, {Address: addr(t, "A@SIMULATOR.test")}, {Address: addr(t, "c@simulator.test")}}}
		id, err := s.Outbox.Submit(t.Context(), alice, sub, strings.NewReader(
			"From: alice@demo.test\r\nTo: A <a@simulator.test>\r\nCc: c@simulator.test\r\nBcc: b@simulator.test\r\nSubject: =?utf-8?q?=00x=C3=A4?=\r\n\r\nHi\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Outbox.Get(t.Context(), alice.Account, id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range m.Deliveries {
			got = append(got, d.Kind+" "+d.Recipient)
		}
		if fmt.Sprint(got) != "[envelope a@simulator.test bcc b@simulator.test envelope c@simulator.test]" {
			t.Errorf("deliveries %v", got)
		}
		if m.Mailbox != alice.ID || strings.TrimSpace(m.Subject) != "xä" || m.MessageID == "" || m.From != "alice@demo.test" {
			t.Errorf("got %+v", m)
		}
	})
}

// A send is refused before anything is stored, with its faults before the
// question who may send.
func TestSendRefusals(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		good := outbound.Send{FromEmail: "x@demo.test", To: []string{"delivered@simulator.test"}, Subject: "x", Text: "x"}
		send := func(domain string, change func(*outbound.Send)) error {
			m := good
			change(&m)
			_, err := s.Outbox.Send(t.Context(), principal(acc.ID, domain), []outbound.Send{m}, outbound.Options{})
			return err
		}
		for what, c := range map[string]struct {
			err  error
			kind fault.Kind
		}{
			"a foreign domain":            {send("", func(m *outbound.Send) { m.FromEmail = "x@example.com" }), fault.Denied},
			"a sub-domain":                {send("", func(m *outbound.Send) { m.FromEmail = "x@a.demo.test" }), fault.Denied},
			"a key of another domain":     {send("other.test", func(*outbound.Send) {}), fault.Denied},
			"a foreign domain, and wrong": {send("", func(m *outbound.Send) { m.FromEmail, m.Text = "x@example.com", "" }), fault.Invalid},
		} {
			if !fault.Is(c.err, c.kind) {
				t.Errorf("%s: %v", what, c.err)
			}
		}
		if list := messages(t, s, acc.ID); len(list) != 0 {
			t.Errorf("stored: %+v", list)
		}
		if err := send("demo.test", func(m *outbound.Send) { m.FromEmail = "Any.One@DEMO.test" }); err != nil {
			t.Error(err)
		}
		if list := messages(t, s, acc.ID); len(list) != 1 || list[0].From != "Any.One@demo.test" {
			t.Errorf("stored: %+v", list)
		}
		if _, err := s.Outbox.Get(t.Context(), acc.ID+1, messages(t, s, acc.ID)[0].ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another account: %v", err)
		}
	})
}

func principal(id db.ID, domain string) account.Principal {
	return account.Principal{Account: id, Scopes: []string{account.All}, Domain: domain}
}

func messages(t *testing.T, s *servertest.Server, id db.ID) []outbound.Message {
	t.Helper()
	found, err := s.Outbox.Find(t.Context(), id, outbound.Filter{}, db.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Messages
}
