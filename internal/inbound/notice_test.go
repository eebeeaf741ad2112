// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

var (
	inboxOf  = db.SQL(`SELECT id FROM folder WHERE mailbox = $1 AND name = 'INBOX'`)
	textsOf  = db.SQL(`SELECT blob FROM message WHERE mailbox = $1 ORDER BY id`)
	noticesN = db.SQL(`SELECT COUNT(*) FROM notice`)
	bouncesN = db.SQL(`SELECT COUNT(*) FROM event WHERE account = $1 AND position > 0 AND kind = 'bounce'`)
)

// post is a mailbox of a whole service.
type post struct {
	*servertest.Server
	t   *testing.T
	box mailbox.Mailbox
}

func postOf(t *testing.T, s *servertest.Server, n int) *post {
	t.Helper()
	box, err := s.Mailboxes.ByID(t.Context(), s.Dev.Mailboxes[n].ID)
	if err != nil {
		t.Fatal(err)
	}
	return &post{s, t, box}
}

// submit hands a message in.
func (p *post) submit(change func(*outbound.Submission), text string, to ...outbound.Rcpt) db.ID {
	p.t.Helper()
	from := addr(p.t, p.box.Address)
	sub := outbound.Submission{From: &from, To: to, Received: message.Received{By: "localhost", With: "ESMTPSA"}}
	if change != nil {
		change(&sub)
	}
	id, err := p.Outbox.Submit(p.t.Context(), p.box, sub, strings.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// mail waits until n messages are in the mailbox, and returns them.
func (p *post) mail(n int) []string {
	p.t.Helper()
	var inbox int64
	if err := p.DB.One(p.t.Context(), inboxOf.With(p.box.ID), &inbox); err != nil {
		p.t.Fatal(err)
	}
	sub := p.Hub.Subscribe(signal.Key{Kind: signal.Folder, ID: inbox})
	defer sub.Close()
	for {
		all := p.texts()
		if len(all) >= n {
			return all
		}
		<-sub.C
	}
}

func (p *post) texts() (all []string) {
	p.t.Helper()
	ids, err := db.All(p.t.Context(), p.DB, textsOf.With(p.box.ID), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		p.t.Fatal(err)
	}
	for _, id := range ids {
		b, err := p.Blobs.Load(p.t.Context(), id)
		if err != nil {
			p.t.Fatal(err)
		}
		r, err := b.Open(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		text, err := io.ReadAll(r.All())
		if err != nil {
			p.t.Fatal(err)
		}
		_ = r.Close()
		all = append(all, string(text))
	}
	return all
}

func rcpt(t *testing.T, a string, n smtpclient.Notify, orcpt string) outbound.Rcpt {
	return outbound.Rcpt{Address: addr(t, a), Notify: n, Original: orcpt}
}

func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("lacks %q:\n%s", w, text)
		}
	}
}

func lacks(t *testing.T, text string, not ...string) {
	t.Helper()
	for _, w := range not {
		if strings.Contains(text, w) {
			t.Errorf("has %q:\n%s", w, text)
		}
	}
}

const note = "From: alice@demo.test\r\nTo: nobody@demo.test\r\nSubject: a question\r\nMessage-ID: <q1@demo.test>\r\n\r\nWhen?\r\n"

// A failure comes back into the sender's mailbox, as one mail for all
// recipients, and with what the sender said about the message.
func TestFailureIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		alice.submit(func(sub *outbound.Submission) { sub.EnvID = "order 7" }, note,
			rcpt(t, "nobody@demo.test", 0, "rfc822;old@list.example"), rcpt(t, "noone@demo.test", smtpclient.NotifyFailure, ""),
			rcpt(t, "never@demo.test", smtpclient.NotifyNever, ""), rcpt(t, "delay@demo.test", smtpclient.NotifyDelay, ""))
		text := alice.mail(1)[0]
		has(t, text,
			"Return-Path: <>\r\nDelivered-To: alice@demo.test\r\n",
			"From: Mail Delivery System <MAILER-DAEMON@mail.mailstead.test>\r\n",
			"Subject: Undelivered: a question\r\n", "In-Reply-To: <q1@demo.test>\r\n", "References: <q1@demo.test>\r\n",
			"Auto-Submitted: auto-replied\r\n", "Content-Type: multipart/report; report-type=delivery-status;",
			"Original-Envelope-Id: order 7\r\nReporting-MTA: dns; mail.mailstead.test\r\nArrival-Date: ",
			"Original-Recipient: rfc822; old@list.example\r\nFinal-Recipient: rfc822; nobody@demo.test\r\nAction: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 ",
			"\r\n\r\nFinal-Recipient: rfc822; noone@demo.test\r\nAction: failed\r\n",
			"There is no mailbox with this address.",
			"Content-Type: message/rfc822\r\n", "\r\n\r\nWhen?\r\n")
		lacks(t, text, "never@demo.test\r\nAction", "delay@demo.test\r\nAction")
		var left int
		if err := s.DB.One(t.Context(), noticesN.With(), &left); err != nil || left != 0 {
			t.Errorf("%d notices are left, %v", left, err)
		}
	})
}

// Success is told only when it was asked for: by us for mailboxes here, and
// for hosts that do not report themselves.
func TestSuccessIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		alice.submit(func(sub *outbound.Submission) { sub.Ret = "FULL" }, note, rcpt(t, "bob@demo.test", 0, ""),
			rcpt(t, "bob+x@demo.test", smtpclient.NotifySuccess|smtpclient.NotifyFailure, ""))
		text := alice.mail(1)[0]
		has(t, text, "Subject: Delivered: a question\r\n", "Final-Recipient: rfc822; bob+x@demo.test\r\nAction: delivered\r\nStatus: 2.0.0\r\n",
			"Content-Type: text/rfc822-headers\r\n")
		lacks(t, text, "When?", "bob@demo.test")
		alice.submit(nil, note, rcpt(t, "far@away.example", smtpclient.NotifySuccess, ""))
		text = alice.mail(2)[1]
		has(t, text, "Final-Recipient: rfc822; far@away.example\r\nAction: relayed\r\n")
	})
}

// Nobody is told of what the null sender sent, and API mail has its events.
func TestNobodyIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		alice.submit(func(sub *outbound.Submission) { sub.From = nil }, note, rcpt(t, "nobody@demo.test", smtpclient.NotifyFailure, ""))
		if a := s.API("POST", "/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"nobody@demo.test"}, "subject": "x", "text": "x"}); a.Status != 202 {
			t.Fatal(string(a.Body))
		}
		sub := s.Hub.Subscribe(signal.Key{Kind: signal.Stream, ID: int64(alice.box.Account)})
		defer sub.Close()
		for bounces := 0; bounces < 2; {
			if err := s.DB.One(t.Context(), bouncesN.With(alice.box.Account), &bounces); err != nil {
				t.Fatal(err)
			}
			if bounces < 2 {
				<-sub.C
			}
		}
		var notices int
		if err := s.DB.One(t.Context(), noticesN.With(), &notices); err != nil || notices != 0 || len(alice.texts()) != 0 {
			t.Errorf("%d notices, %d reports, %v", notices, len(alice.texts()), err)
		}
	})
}
