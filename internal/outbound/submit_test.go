// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
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

// A mailbox submits as itself and its plus-addresses only, in the envelope and in every author in
// the header.
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
			sub := outbound.Submission{To: []outbound.SubmissionRecipient{{Address: addr(t, "bob@demo.test")}}, Received: message.ReceivedField{By: "localhost", With: "ESMTPSA"}}
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

// Each envelope address has one delivery. Blind recipients are distinguished from those that the
// header names.
func TestSubmitRecipients(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, err := s.Mailboxes.ByID(t.Context(), s.Dev.Mailboxes[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		from := addr(t, "alice@demo.test")
		sub := outbound.Submission{From: &from, Received: message.ReceivedField{By: "localhost", With: "ESMTPSA"}, To: []outbound.SubmissionRecipient{
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

// A send is rejected before anything is stored; its faults are reported before the sender is
// checked.
func TestSendRefusals(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		good := outbound.SendRequest{FromEmail: "x@demo.test", To: []string{"delivered@simulator.test"}, Subject: "x", Text: "x"}
		send := func(domain string, change func(*outbound.SendRequest)) error {
			m := good
			change(&m)
			_, err := s.Outbox.Send(t.Context(), principal(acc.ID, domain), []outbound.SendRequest{m}, outbound.SendOptions{})
			return err
		}
		for what, c := range map[string]struct {
			err  error
			kind fault.Kind
		}{
			"a foreign domain":            {send("", func(m *outbound.SendRequest) { m.FromEmail = "x@example.com" }), fault.Denied},
			"a sub-domain":                {send("", func(m *outbound.SendRequest) { m.FromEmail = "x@a.demo.test" }), fault.Denied},
			"a key of another domain":     {send("other.test", func(*outbound.SendRequest) {}), fault.Denied},
			"a foreign domain, and wrong": {send("", func(m *outbound.SendRequest) { m.FromEmail, m.Text = "x@example.com", "" }), fault.Invalid},
		} {
			if !fault.Is(c.err, c.kind) {
				t.Errorf("%s: %v", what, c.err)
			}
		}
		if list := messages(t, s, acc.ID); len(list) != 0 {
			t.Errorf("stored: %+v", list)
		}
		if err := send("demo.test", func(m *outbound.SendRequest) { m.FromEmail = "Any.One@DEMO.test" }); err != nil {
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
	return account.Principal{Account: id, Scopes: []string{account.ScopeAll}, Domain: domain}
}

func messages(t *testing.T, s *servertest.Server, id db.ID) []outbound.Message {
	t.Helper()
	found, err := s.Outbox.Index.Find(t.Context(), id, index.Filter{}, db.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Messages
}

var wantsUTF8 = db.SQL(`SELECT utf8, eight_bit FROM outbound_message WHERE id = $1`)

// Invalid headers that mail programs send and other hosts reject are normalized before signing, so
// that the message needs no SMTPUTF8. The stored message is the one that was sent.
func TestSubmitMendsHeaders(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, err := s.Mailboxes.ByID(t.Context(), s.Dev.Mailboxes[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		from := addr(t, "alice@demo.test")
		submit := func(text string) (db.ID, error) {
			return s.Outbox.Submit(t.Context(), alice, outbound.Submission{From: &from, Received: message.ReceivedField{By: "localhost", With: "ESMTPSA"},
				To: []outbound.SubmissionRecipient{{Address: addr(t, "bob@demo.test")}}}, strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")))
		}
		whole := func(id db.ID) string {
			t.Helper()
			in, err := s.Outbox.Open(t.Context(), alice.Account, id)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close() //nolint:errcheck // only read
			b, err := io.ReadAll(in.All())
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		for what, c := range map[string]struct {
			text string
			utf8 bool
			has  []string
		}{
			"Latin-1": {"From: \"J\xf6rg, A.\" <alice@demo.test>\nTo: M\xfcller <bob@demo.test>\nSubject: Gr\xfc\xdfe\n\nHi\n", false,
				[]string{"From: =?utf-8?b?SsO2cmcsIEEu?= <alice@demo.test>\r\n", "Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n"}},
			"by its text's charset": {"From: alice@demo.test\nSubject: \xf0\xd2\xc9\xd7\xc5\xd4\nMIME-Version: 1.0\nContent-Type: text/plain; charset=koi8-r\n\n\xf0\xd2\n", false,
				[]string{"Subject: =?utf-8?b?0J/RgNC40LLQtdGC?=\r\n", "charset=koi8-r\r\n"}},
			"an attachment's name": {"From: alice@demo.test\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nHi\n--b\nContent-Type: text/plain; name=\"Maß.txt\"\n\nx\n--b--\n", false,
				[]string{"name=\"=?utf-8?b?TWHDny50eHQ=?=\"\r\n"}},
			"a UTF-8 address":   {"From: alice@demo.test\nTo: Jörg <jörg@demo.test>\n\nHi\n", true, []string{"To: =?utf-8?b?SsO2cmc=?= <jörg@demo.test>\r\n"}},
			"such a one in Bcc": {"From: alice@demo.test\nBcc: jörg@demo.test\n\nHi\n", false, nil},
			"a long line":       {"From: alice@demo.test\nSubject: " + strings.Repeat("word ", 300) + "\n\nHi\n", false, nil},
			"no empty line":     {"From: alice@demo.test\nHi there\n\nBye\n", false, []string{"From: alice@demo.test\r\n\r\nHi there\r\n\r\nBye\r\n"}},
			"a byte order mark": {"\ufeffFrom: alice@demo.test\n\nHi\n", false, []string{"\r\nFrom: alice@demo.test\r\n\r\nHi\r\n"}},
			"an empty date":     {"From: alice@demo.test\nDate:\nMessage-ID: x\n\nHi\n", false, []string{"Message-ID: <"}},
		} {
			id, err := submit(c.text)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			m, err := s.Outbox.Get(t.Context(), alice.Account, id)
			if err != nil {
				t.Fatal(err)
			}
			text := whole(id)
			for _, part := range append(c.has, "Message-ID: "+m.MessageID+"\r\n") {
				if !strings.Contains(text, part) {
					t.Errorf("%s: there is no %q in\n%s", what, part, text)
				}
			}
			for line := range strings.SplitSeq(text, "\r\n") {
				if len(line) > 998 {
					t.Errorf("%s: a line of %d octets", what, len(line))
				}
			}
			if head := message.Header(text); head.Count("Date") != 1 || head.Count("Message-ID") != 1 || strings.Contains(text, "Date:\r\n") {
				t.Errorf("%s:\n%s", what, text)
			}
			var utf8, eightBit bool
			if err := s.DB.One(t.Context(), wantsUTF8.With(id), &utf8, &eightBit); err != nil || utf8 != c.utf8 || eightBit {
				t.Errorf("%s: SMTPUTF8 %v, 8BITMIME %v, %v", what, utf8, eightBit, err)
			}
		}
		if m := messages(t, s, alice.Account); len(m) != 9 {
			t.Errorf("%d messages", len(m))
		}
		for what, text := range map[string]string{
			"two subjects": "From: alice@demo.test\nSubject: a\nSubject: b\n\nHi\n", "an odd line": "From: alice@demo.test\nHi there\nSubject: a\n\nHi\n",
			"two dates": "From: alice@demo.test\nDate: Thu, 26 Nov 2026 10:00:00 +0000\nDate: Thu, 26 Nov 2026 11:00:00 +0000\n\nHi\n",
		} {
			if _, err := submit(text); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
