// SPDX-License-Identifier: Apache-2.0

package dsn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/summary"
)

var (
	addNotice = db.SQL(`INSERT INTO notice (id, message, n, action, recipient, orcpt, code, enhanced, reply, remote_host, next_at, expires_at, at, due_at)
		VALUES ($1, $2, 0, 'failed', 'lost@far.example', '', 550, '5.1.1', 'no such user', 'mx.far.example', 0, 0, $3, $3)`)
	overFull   = db.SQL(`UPDATE mailbox_usage SET bytes = 1000000000000, nearly_full = 2 WHERE mailbox = $1`)
	sentAs     = db.SQL(`UPDATE outbound_message SET sender = $2 WHERE id = $1`)
	passedOn   = db.SQL(`UPDATE outbound_message SET sender = $2, mailbox = 0, forwarded = $3 WHERE id = $1`)
	outOfHand  = db.SQL(`UPDATE delivery SET state = 'queued', lease = 0, hold = 1 WHERE message = $1 AND state = 'delivered'`)
	ofOthers   = db.SQL(`UPDATE outbound_message SET account = $2, domain = $3 WHERE id = $1`)
	passedOnAs = db.SQL(`SELECT sender FROM outbound_message WHERE forwarded <> 0 AND sender <> ''`)
	loseDomain = db.SQL(`UPDATE domain SET owned = FALSE, status = 'failed' WHERE id = $1`)
	takeDomain = db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at,
			next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		SELECT $1, $2, name, 'verified', TRUE, token, receives, sends, aligned, records, checked_at,
			next_check_at, checks, mismatch_since, contested_since, verified_at, created_at FROM domain WHERE id = $3`)
	forgetDomain = db.SQL(`UPDATE domain SET name = 'gone.test' WHERE id = $1`)
	sentN        = db.SQL(`SELECT COUNT(*) FROM outbound_message WHERE account = $1`)
	longAgo      = db.SQL(`UPDATE outbound_message SET created_at = $2 WHERE id = $1`)
	becameOf     = db.SQL(`SELECT state FROM delivery WHERE recipient = $1`)
	lateNow      = db.SQL(`UPDATE delivery SET delay_report_at = 1 WHERE message = $1 AND state = 'deferred' AND lease IS NULL`)
	inboxOf      = db.SQL(`SELECT id FROM folder WHERE mailbox = $1 AND name = 'INBOX'`)
	textsOf      = db.SQL(`SELECT blob FROM message WHERE mailbox = $1 ORDER BY id`)
	loseSent     = db.SQL(`DELETE FROM blob WHERE id IN (SELECT blob FROM outbound_message)`)
	// Breaks reading the rows of sent mail: PostgreSQL rejects the division, and SQLite's NULL
	// can't be scanned.
	hideRows  = db.SQL(`ALTER TABLE blob RENAME TO sound`)
	spoilSent = db.SQL(`CREATE VIEW blob AS SELECT b.id, b.size / (CASE WHEN o.id IS NULL THEN 1 ELSE 0 END) AS size, b.file, b.bytes
		FROM sound AS b LEFT JOIN outbound_message AS o ON o.blob = b.id`)
	ruleSQLite   = db.SQL(`CREATE TRIGGER onward INSTEAD OF INSERT ON blob BEGIN INSERT INTO sound VALUES (NEW.id, NEW.size, NEW.file, NEW.bytes); END`)
	rulePostgres = db.SQL(`CREATE RULE onward AS ON INSERT TO blob DO INSTEAD INSERT INTO sound VALUES (NEW.id, NEW.size, NEW.file, NEW.bytes)`)
	noticesN     = db.SQL(`SELECT COUNT(*) FROM notice`)
	bouncesN     = db.SQL(`SELECT COUNT(*) FROM event WHERE account = $1 AND position > 0 AND kind = 'bounce'`)
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

// submit submits a message.
func (p *post) submit(change func(*outbound.Submission), text string, to ...outbound.SubmissionRecipient) db.ID {
	p.t.Helper()
	from := addr(p.t, p.box.Address)
	sub := outbound.Submission{From: &from, To: to, Received: message.ReceivedField{By: "localhost", With: "ESMTPSA"}}
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
	sub := p.Hub.Subscribe(notify.Key{Kind: notify.Folder, ID: inbox})
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

func newRcpt(t *testing.T, a string, n smtpclient.Notify, orcpt string) outbound.SubmissionRecipient {
	return outbound.SubmissionRecipient{Address: addr(t, a), Notify: n, OriginalRecipient: orcpt}
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

func addr(t testing.TB, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const note = "From: alice@demo.test\r\nTo: nobody@demo.test\r\nSubject: a question\r\nMessage-ID: <q1@demo.test>\r\n\r\nWhen?\r\n"

// A failure report goes to the sender's mailbox: one message for all recipients, with the sender's
// DSN options.
func TestFailureIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		alice.submit(func(sub *outbound.Submission) { sub.EnvID = "order 7" }, note,
			newRcpt(t, "nobody@demo.test", 0, "rfc822;old@list.example"), newRcpt(t, "noone@demo.test", smtpclient.NotifyFailure, ""),
			newRcpt(t, "never@demo.test", smtpclient.NotifyNever, ""), newRcpt(t, "delay@demo.test", smtpclient.NotifyDelay, ""))
		text := alice.mail(1)[0]
		has(t, text,
			"Return-Path: <>\r\nDelivered-To: alice@demo.test\r\n",
			"From: Mail Delivery System <MAILER-DAEMON@mail.mailstead.test>\r\n",
			"Subject: Undelivered: a question\r\n", "In-Reply-To: <q1@demo.test>\r\n", "References: <q1@demo.test>\r\n",
			"Auto-Submitted: auto-replied\r\n", "Content-Type: multipart/report; report-type=delivery-status;",
			"Original-Envelope-Id: order 7\r\nReporting-MTA: dns; mail.mailstead.test\r\nArrival-Date: ",
			"Original-Recipient: rfc822; old@list.example\r\nFinal-Recipient: rfc822; nobody@demo.test\r\nAction: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: X-Mailstead; 550 5.1.1 ",
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

// Success is reported only on request: by this service for local mailboxes, and for hosts that
// don't send reports themselves.
func TestSuccessIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		alice.submit(func(sub *outbound.Submission) { sub.Ret = "FULL" }, note, newRcpt(t, "bob@demo.test", 0, ""),
			newRcpt(t, "bob+x@demo.test", smtpclient.NotifySuccess|smtpclient.NotifyFailure, ""))
		text := alice.mail(1)[0]
		has(t, text, "Subject: Delivered: a question\r\n", "Final-Recipient: rfc822; bob+x@demo.test\r\nAction: delivered\r\nStatus: 2.0.0\r\n",
			"Content-Type: text/rfc822-headers\r\n")
		lacks(t, text, "When?", "bob@demo.test")
		alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifySuccess, ""))
		text = alice.mail(2)[1]
		has(t, text, "Subject: Relayed: a question\r\n", "Final-Recipient: rfc822; far@away.example\r\nAction: relayed\r\n")
		// A message forwarded by an alias is in no mailbox here, unless the alias leads to one as
		// well.
		for n, tt := range []struct {
			targets []string
			action  string
		}{{[]string{"x@away.example"}, "expanded"}, {[]string{"x@away.example", "y@away.example"}, "expanded"}, {[]string{"x@away.example", "bob@demo.test"}, "delivered"}} {
			name := fmt.Sprintf("alias%d@demo.test", n)
			if _, err := s.Mailboxes.CreateAlias(t.Context(), alice.box.Account, name, tt.targets); err != nil {
				t.Fatal(err)
			}
			alice.submit(nil, note, newRcpt(t, name, smtpclient.NotifySuccess, ""))
			has(t, alice.mail(3 + n)[2+n], "Final-Recipient: rfc822; "+name+"\r\nAction: "+tt.action+"\r\n")
		}
	})
}

// Nobody gets reports for mail of the null sender. API mail has events instead.
func TestNobodyIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		alice.submit(func(sub *outbound.Submission) { sub.From = nil }, note, newRcpt(t, "nobody@demo.test", smtpclient.NotifyFailure, ""))
		if a := s.API("POST", "/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"nobody@demo.test"}, "subject": "x", "text": "x"}); a.Status != 202 {
			t.Fatal(string(a.Body))
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
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

// notice adds a notice of a failure, as the queue does in the commit of the outcome, without a
// signal. That is the state if the process ends there.
func (p *post) notice(message db.ID) {
	p.t.Helper()
	dbtest.Exec(p.t, p.DB, addNotice.With(p.DB.NewID(), message, db.Micros(time.Now().Add(-time.Minute))))
}

func (p *post) tell() {
	p.t.Helper()
	if _, err := p.Notifications.SendPending(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *post) wantNotices(n int) {
	p.t.Helper()
	var got int
	if err := p.DB.One(p.t.Context(), noticesN.With(), &got); err != nil || got != n {
		p.t.Errorf("%d notices are left, not %d; %v", got, n, err)
	}
}

// wantFailed sends the pending reports: there are n reports then, the last of them about the lost
// recipient.
func (p *post) wantFailed(n int) {
	p.t.Helper()
	p.tell()
	p.wantNotices(0)
	if all := p.texts(); len(all) != n {
		p.t.Errorf("%d reports", len(all))
	} else {
		has(p.t, all[n-1], "Final-Recipient: rfc822; lost@far.example\r\nAction: failed\r\n")
	}
}

// wantReport waits, by the events of the sending account, until a report is delivered.
func (p *post) wantReport(sub *notify.Subscription, to string) {
	p.t.Helper()
	for {
		var state string
		if err := p.DB.One(p.t.Context(), becameOf.With(to), &state); err != nil {
			p.t.Fatal("the report", err)
		}
		if queue.State(state).Final() {
			if state != string(queue.Delivered) {
				p.t.Errorf("the report is %s", state)
			}
			return
		}
		<-sub.C
	}
}

// If a process ends between the outcome and the report, the next start files the report once.
func TestNoticesOutliveTheProcess(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		dir := t.TempDir()
		same := servertest.Data(dir)
		s := servertest.Start(t, servertest.Database(url), same)
		alice := postOf(t, s, 0)
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		notice := s.DB.NewID()
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		d, err := db.Open(t.Context(), db.Options{URL: databaseOf(url, dir)})
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, d, addNotice.With(notice, id, db.Micros(time.Now().Add(-time.Minute))))
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		s = servertest.Start(t, servertest.Database(url), same)
		alice = postOf(t, s, 0)
		has(t, alice.mail(1)[0], "Final-Recipient: rfc822; lost@far.example\r\n")
		alice.tell()
		if all := alice.texts(); len(all) != 1 {
			t.Errorf("%d reports", len(all))
		}
		alice.wantNotices(0)
	})
}

// Even if several nodes work at the same time, each report is filed once.
func TestNoticesAreToldOnce(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		const messages = 10
		for range messages {
			id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
			alice.notice(id)
			alice.notice(id)
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := s.Notifications.SendPending(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		alice.tell()
		if got := alice.texts(); len(got) != messages {
			t.Errorf("%d reports about %d messages", len(got), messages)
		}
		alice.wantNotices(0)
	})
}

// A full mailbox still gets its reports. A deleted one gets none, and nobody else gets them
// instead.
func TestNoticesOfFullAndGone(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, bob := postOf(t, s, 0), postOf(t, s, 1)
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		dbtest.Exec(t, alice.DB, overFull.With(alice.box.ID))
		alice.notice(id)
		alice.tell()
		if n := len(alice.texts()); n != 1 {
			t.Errorf("%d reports to a full mailbox", n)
		}
		// A former address of this mailbox that no longer leads anywhere.
		dbtest.Exec(t, alice.DB, sentAs.With(id, "former@demo.test"))
		alice.notice(id)
		alice.tell()
		if n := len(alice.texts()); n != 2 {
			t.Errorf("%d reports to the mailbox that submitted", n)
		}
		dbtest.Exec(t, alice.DB, sentAs.With(id, alice.box.Address))
		if err := s.Mailboxes.Delete(t.Context(), alice.box.Account, alice.box.ID); err != nil {
			t.Fatal(err)
		}
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		if a, b := len(alice.texts()), len(bob.texts()); a != 2 || b != 0 {
			t.Errorf("%d reports to the mailbox that is gone, %d to another", a, b)
		}
	})
}

// API mail that a mailbox forwards has a signed return path as its sender. The outcome is recorded
// through that path, not sent to a catch-all.
func TestNoticesToReturnPaths(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, bob := postOf(t, s, 0), postOf(t, s, 1)
		if _, err := s.Mailboxes.CreateAlias(t.Context(), alice.box.Account, "*@demo.test", []string{bob.box.Address}); err != nil {
			t.Fatal(err)
		}
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		dbtest.Exec(t, alice.DB, passedOn.With(id, s.Inbound.Key.ReturnPath(int64(id), 0)+"@demo.test", alice.box.ID))
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		if n := len(bob.texts()); n != 0 {
			t.Errorf("%d reports to the catch-all's mailbox", n)
		}
	})
}

// A forward may fail before the delivery that caused it has its outcome: the node ended in between,
// and an operator holds the delivery. The failure is still reported.
func TestForwardFailsBeforeTheOutcome(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		var sent struct{ ID db.ID }
		a := s.API("POST", "/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "x", "text": "x"})
		if err := json.Unmarshal(a.Body, &sent); err != nil || a.Status != 202 {
			t.Fatal(string(a.Body), err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		for dbtest.Exec(t, s.DB, outOfHand.With(sent.ID)) == 0 {
			<-sub.C
		}
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		dbtest.Exec(t, s.DB, passedOn.With(id, s.Inbound.Key.ReturnPath(int64(sent.ID), 0)+"@demo.test", alice.box.ID))
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		if d, err := s.Queue.Deliveries(t.Context(), sent.ID); err != nil || d[0].State != queue.Bounced || d[0].Held {
			t.Errorf("the delivery is %+v, %v", d, err)
		}
	})
}

// The outcome of forwarded API mail is reported even if its domain is no longer hosted here,
// because the return path is signed.
func TestNoticesToReturnPathsElsewhere(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		for dbtest.Exec(t, s.DB, outOfHand.With(id)) == 0 {
			<-sub.C
		}
		dbtest.Exec(t, s.DB, passedOn.With(id, s.Inbound.Key.ReturnPath(int64(id), 0)+"@moved.test", alice.box.ID))
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		if d, err := s.Queue.Deliveries(t.Context(), id); err != nil || d[0].State != queue.Bounced {
			t.Errorf("the delivery is %+v, %v", d, err)
		}
	})
}

// Forwarded mail keeps the sender's DSN options (RFC 3461 §5.2.7), both by an alias and by a
// mailbox.
func TestForwardsAreToldAsAsked(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		ctx, alice, bob := t.Context(), postOf(t, s, 0), postOf(t, s, 1)
		elsewhere, keep := []string{"bounced@simulator.test"}, false
		if _, err := s.Mailboxes.CreateAlias(ctx, alice.box.Account, "out@demo.test", elsewhere); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Mailboxes.Update(ctx, bob.box.Account, bob.box.ID, mailbox.Change{ForwardTo: &elsewhere, KeepCopy: &keep}); err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		bounces := 0
		for n, to := range []string{"out@demo.test", "bob@demo.test"} {
			for _, asked := range []smtpclient.Notify{smtpclient.NotifyNever, smtpclient.NotifyDelay} {
				alice.submit(nil, note, newRcpt(t, to, asked, ""))
				for bounces++; ; <-sub.C {
					var seen int
					if err := s.DB.One(ctx, bouncesN.With(alice.box.Account), &seen); err != nil {
						t.Fatal(err)
					}
					if seen == bounces {
						break
					}
				}
				alice.tell()
				alice.wantNotices(0)
				if all := alice.texts(); len(all) != n {
					t.Errorf("%s, %d: %d reports", to, asked, len(all))
				}
			}
			alice.submit(func(sub *outbound.Submission) { sub.EnvID, sub.Ret = "order 7", "HDRS" }, note,
				newRcpt(t, to, smtpclient.NotifyFailure, "rfc822;old@list.example"))
			bounces++
			text := alice.mail(n + 1)[n]
			has(t, text, "Original-Envelope-Id: order 7\r\n", "Original-Recipient: rfc822; old@list.example\r\nFinal-Recipient: rfc822; bounced@simulator.test\r\nAction: failed\r\n",
				"Content-Type: text/rfc822-headers\r\n")
		}
	})
}

// The report returns what RET asks for; without RET it returns small messages in full.
func TestWhatComesBack(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		large := note + strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 4000) + "The end.\r\n"
		for n, c := range []struct {
			ret, text string
			whole     bool
		}{{"", note, true}, {"HDRS", note, false}, {"FULL", note, true}, {"", large, false}, {"FULL", large, true}} {
			alice.submit(func(sub *outbound.Submission) { sub.Ret = c.ret }, c.text, newRcpt(t, "nobody@demo.test", 0, ""))
			text := alice.mail(n + 1)[n]
			kind := map[bool]string{true: "Content-Type: message/rfc822\r\n", false: "Content-Type: text/rfc822-headers\r\n"}[c.whole]
			if !strings.Contains(text, kind) || strings.Contains(text, "\r\n\r\nWhen?\r\n") != c.whole || !strings.Contains(text, "\r\nMessage-ID: <q1@demo.test>\r\n") {
				t.Errorf("%q of %d octets: %.3000s", c.ret, len(c.text), text)
			}
			if c.whole && len(c.text) > len(note) && !strings.Contains(text, "The end.\r\n") {
				t.Error("the end is missing")
			}
		}
		intl := strings.Replace(note, "nobody@", "niemänd@", 1)
		alice.submit(nil, intl, newRcpt(t, "niemänd@demo.test", 0, "utf-8;früher@list.example"))
		has(t, alice.mail(6)[5], "Content-Type: message/global-delivery-status\r\n", "Original-Recipient: utf-8; früher@list.example\r\nFinal-Recipient: utf-8; niemänd@demo.test\r\n",
			"Content-Type: message/global\r\n", "\r\nTo: niemänd@demo.test\r\n")
	})
}

// A header of the maximum size, which exceeds it with our own fields, prevents no reports about
// this message or others.
func TestFailureOfLargeHeader(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		fill := strings.Repeat("X-Fill: "+strings.Repeat("x", 88)+"\r\n", (message.MaxHeader-len(note))/98)
		alice.submit(nil, fill+note, newRcpt(t, "nobody@demo.test", 0, ""), newRcpt(t, "bob@demo.test", 0, ""))
		text := alice.mail(1)[0]
		has(t, text, "Final-Recipient: rfc822; nobody@demo.test\r\nAction: failed\r\n")
		lacks(t, text, "X-Fill")
		alice.wantNotices(0)
	})
}

// The sender gets a report even if the message's row is lost or unreadable.
func TestNoticesOfLostRow(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		rule := ruleSQLite
		if s.DB.Engine() == db.Postgres {
			rule = rulePostgres
		}
		for n, lose := range [][]db.Statement{{loseSent.With()}, {hideRows.With(), spoilSent.With(), rule.With()}} {
			id := alice.submit(nil, note, newRcpt(t, "nobody@demo.test", smtpclient.NotifyNever, ""))
			dbtest.Exec(t, s.DB, lose...)
			alice.notice(id)
			alice.wantFailed(n + 1)
		}
	})
}

// The sender gets one report, without the message, even if the message's file is lost, damaged or
// unreadable.
func TestNoticesOfDamaged(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		for n, damage := range []func(string) error{
			func(name string) error { return os.Truncate(name, 10) },
			func(name string) error { return os.Truncate(name, 10_000) },
			func(name string) error { return errors.Join(os.Remove(name), os.Symlink("/proc/self/mem", name)) }, // EIO
			os.Remove,
		} {
			id := alice.submit(func(sub *outbound.Submission) { sub.Ret = "FULL" }, note+strings.Repeat("All work and no play.\r\n", 10_000),
				newRcpt(t, "nobody@demo.test", smtpclient.NotifyNever, ""))
			files, err := filepath.Glob(filepath.Join(s.Config.Blobs, "*", "*"))
			if err != nil || len(files) != n+1 {
				t.Fatalf("files %v, %v", files, err)
			}
			for _, name := range files {
				if err := damage(name); err != nil {
					t.Fatal(err)
				}
			}
			alice.notice(id)
			alice.wantFailed(n + 1)
		}
	})
}

// After four hours the sender gets a report that the mail is delayed and retried.
func TestDelayIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		id := alice.submit(nil, note, newRcpt(t, "deferred@simulator.test", 0, ""))
		for dbtest.Exec(t, alice.DB, lateNow.With(id)) == 0 {
			<-sub.C
		}
		alice.tell() // adds the notice
		alice.tell()
		text := alice.mail(1)[0]
		has(t, text, "Subject: Delayed: a question\r\n", "Action: delayed\r\nStatus: 4.", "Will-Retry-Until: ", "The next try is at ", "text/rfc822-headers")
		lacks(t, text, "When?")
	})
}

func databaseOf(url, dir string) string {
	if strings.HasPrefix(url, "postgres") {
		return url
	}
	return "sqlite:" + dir + "/mailstead.db"
}

// The sender of a forwarded message gets the failure report even if the account has lost its domain
// meanwhile. The domain's new owner sees nothing of it.
func TestNoticesOfFormerHolder(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		former, err := s.Accounts.Create(t.Context(), "former@example.com", "Former")
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(former.ID)})
		defer sub.Close()
		for domain, now := range map[string]db.ID{
			"demo.test":  s.DB.NewID(),     // owned by another account
			"moved.test": alice.box.Domain, // owned by nobody
		} {
			id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
			sender := "ann-" + domain
			back, _ := s.Inbound.Key.SRS(int64(former.ID), domain, sender, "elsewhere.example", time.Now())
			dbtest.Exec(t, s.DB, passedOn.With(id, back+"@"+domain, s.DB.NewID()), ofOthers.With(id, former.ID, now))
			alice.notice(id)
			alice.tell()
			alice.wantNotices(0)
			alice.wantReport(sub, sender+"@elsewhere.example")
		}
		// If the sender wasn't verified, the report would go to the postmaster, who now belongs to
		// the new owner.
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		dbtest.Exec(t, s.DB, passedOn.With(id, "postmaster@demo.test", s.DB.NewID()), ofOthers.With(id, former.ID, s.DB.NewID()))
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		if err := s.DB.One(t.Context(), becameOf.With("postmaster@demo.test"), new(string)); !errors.Is(err, db.ErrNoRow) {
			t.Errorf("a report to the new holder's postmaster: %v", err)
		}
		var seen int
		if err := s.DB.One(t.Context(), sentN.With(alice.box.Account), &seen); err != nil || seen != 0 {
			t.Errorf("the new holder has %d messages, %v", seen, err)
		}
	})
}

// The same holds for a report by another host, and the new owner sees nothing of that either.
func TestReportsOfFormerHolder(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		if a := s.API("POST", "/aliases", map[string]any{"address": "out@demo.test", "targets": []string{"far@away.example"}}); a.Status != 201 {
			t.Fatal(string(a.Body))
		}
		arrives := func(from *address.Address, to string) error {
			l := s.Inbound.Begin(from, 0)
			l.CheckResults = &summary.CheckResults{SPF: "pass"}
			err := l.AddRecipient(t.Context(), addr(t, to))
			if err == nil {
				_, err = l.ReceiveMessage(t.Context(), message.ReceivedField{By: "localhost", With: "ESMTP"}, strings.NewReader(note))
			}
			return err
		}
		ann := addr(t, "ann@elsewhere.example")
		if err := arrives(&ann, "out@demo.test"); err != nil {
			t.Fatal(err)
		}
		var back string
		if err := s.DB.One(t.Context(), passedOnAs.With(), &back); err != nil {
			t.Fatal(err)
		}
		holder, err := s.Accounts.Create(t.Context(), "holder@example.com", "Holder")
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, s.DB, loseDomain.With(alice.box.Domain), takeDomain.With(s.DB.NewID(), holder.ID, alice.box.Domain))
		s.Domains.Invalidate(alice.box.Domain)
		if err := arrives(nil, back); err != nil {
			t.Fatal(err)
		}
		alice.wantReport(sub, ann.String())
		var seen int
		if err := s.DB.One(t.Context(), sentN.With(holder.ID), &seen); err != nil || seen != 0 {
			t.Errorf("the new holder has %d messages, %v", seen, err)
		}
		dbtest.Exec(t, s.DB, forgetDomain.With(alice.box.Domain)) // as if the account were gone
		if err := arrives(nil, back); !fault.Is(err, fault.NotFound) {
			t.Errorf("a report to nobody's path: %v", err)
		}
	})
}

// A delivery that was held for weeks may fail after that: the return path's age counts from the
// forwarding.
func TestNoticesOfLongHeld(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		then := time.Now().Add(-40 * 24 * time.Hour)
		back, _ := s.Inbound.Key.SRS(int64(alice.box.Account), "demo.test", "ann", "elsewhere.example", then)
		dbtest.Exec(t, s.DB, passedOn.With(id, back+"@demo.test", alice.box.ID), longAgo.With(id, db.Micros(then)))
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		var state string
		if err := s.DB.One(t.Context(), becameOf.With("ann@elsewhere.example"), &state); err != nil {
			t.Error("the report", err)
		}
	})
}

// The sender of a forwarded message gets the failure report even if the account is suspended
// meanwhile.
func TestNoticesOfSuspended(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		id := alice.submit(nil, note, newRcpt(t, "far@away.example", smtpclient.NotifyNever, ""))
		back, _ := s.Inbound.Key.SRS(int64(alice.box.Account), "demo.test", "ann", "elsewhere.example", time.Now())
		dbtest.Exec(t, alice.DB, passedOn.With(id, back+"@demo.test", alice.box.ID))
		if err := s.Accounts.SetStatus(t.Context(), alice.box.Account, account.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		alice.notice(id)
		alice.tell()
		alice.wantNotices(0)
		alice.wantReport(sub, "ann@elsewhere.example")
	})
}

// A report that can't be delivered is an event of its account, once per recipient. It doesn't count
// as another bounce.
func TestUntoldIsAnEvent(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		const forged = "b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		id := alice.submit(nil, note, newRcpt(t, "bounced@simulator.test", smtpclient.NotifyNever, ""))
		servertest.Eventually(t, func() string {
			if d, err := s.Queue.Deliveries(t.Context(), id); err != nil || !d[0].State.Final() {
				return fmt.Sprintf("the delivery is %+v, %v", d, err)
			}
			return ""
		})
		dbtest.Exec(t, s.DB, passedOn.With(id, forged+"@demo.test", alice.box.ID))
		for range 2 {
			alice.notice(id)
			alice.tell()
			alice.wantNotices(0)
		}
		var list struct {
			Data []struct {
				Type string
				Data struct {
					Status, Reason, Recipient string
					Sequence                  int
					Code                      int `json:"smtp_code"`
				}
			}
		}
		servertest.Eventually(t, func() string {
			s.API("GET", "/events?limit=100&recipient=bounced@simulator.test", nil).Decode(t, &list)
			if len(list.Data) < 4 {
				return fmt.Sprintf("%d events", len(list.Data))
			}
			return ""
		})
		told := map[int]bool{}
		for _, e := range list.Data {
			if e.Data.Reason == "" {
				continue
			}
			if told[e.Data.Sequence] = true; e.Type != "delivery_status" || e.Data.Reason != queue.ReasonNotReported || e.Data.Status != "bounced" || e.Data.Recipient != "bounced@simulator.test" || e.Data.Code != 550 {
				t.Errorf("the event is %+v", e)
			}
		}
		if len(list.Data) != 4 || len(told) != 2 || !told[3] || !told[4] {
			t.Errorf("the events are %+v", list.Data)
		}
		var bounces int
		if err := s.DB.One(t.Context(), bouncesN.With(alice.box.Account), &bounces); err != nil || bounces != 1 {
			t.Errorf("%d bounces, %v", bounces, err)
		}
	})
}

// A sender who asked for delay reports gets them for forwarded mail, too.
func TestDelayOfForwardIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := postOf(t, s, 0)
		if _, err := s.Mailboxes.CreateAlias(t.Context(), alice.box.Account, "slow@demo.test", []string{"deferred@simulator.test"}); err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(alice.box.Account)})
		defer sub.Close()
		late := db.SQL(`UPDATE delivery SET delay_report_at = 1 WHERE recipient = $1 AND delay_report_at > 0 AND state = 'deferred' AND lease IS NULL`)
		alice.submit(nil, note, newRcpt(t, "slow@demo.test", smtpclient.NotifyDelay, ""))
		for dbtest.Exec(t, alice.DB, late.With("deferred@simulator.test")) == 0 {
			<-sub.C
		}
		alice.tell() // adds the notice
		alice.tell()
		has(t, alice.mail(1)[0], "Subject: Delayed: a question\r\n", "Final-Recipient: rfc822; deferred@simulator.test\r\nAction: delayed\r\n")
	})
}
