// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	answersOf = db.SQL(`SELECT COUNT(*) FROM outbound_message WHERE mailbox = $1`)
	forwardOf = db.SQL(`SELECT COUNT(*) FROM outbound_message WHERE forwarded = $1`)
	longAgo   = db.SQL(`UPDATE vacation_reply SET at = at - $2 WHERE mailbox = $1`)
)

// count returns a query's count for a mailbox. It need not wait, as all effects of a message are in
// the commit before its 250.
func count(t *testing.T, s *servertest.Server, q *db.Query, box int) (n int) {
	t.Helper()
	if err := s.DB.One(t.Context(), q.With(s.Dev.Mailboxes[box].ID), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func clientOf(t *testing.T, s *servertest.Server) *client.Client {
	t.Helper()
	c, err := client.New(s.Dev.BaseURL, s.Dev.APIKey, client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// hand sends a message over an SMTP connection to some recipients.
func hand(c *smtp.Client, from, msg string, to ...string) error {
	defer c.Close() //nolint:errcheck // only a client
	if err := c.Mail(from); err != nil {
		return err
	}
	for _, one := range to {
		if err := c.Rcpt(one); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, msg)
	return errors.Join(err, w.Close())
}

// mx sends a message to the MX.
func mx(t *testing.T, s *servertest.Server, from, msg string, to ...string) error {
	t.Helper()
	c, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		t.Error(err)
		return err
	}
	return hand(c, from, msg, to...)
}

// submitted submits a message as the owner of a mailbox.
func submitted(t *testing.T, s *servertest.Server, box int, msg string, to ...string) {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr("submission"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := smtp.NewClient(nc, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	own := s.Dev.Mailboxes[box]
	if err := errors.Join(c.StartTLS(s.TLS()), c.Auth(smtp.PlainAuth("", own.Address, own.Password, "localhost"))); err != nil {
		t.Fatal(err)
	}
	if err := hand(c, own.Address, msg, to...); err != nil {
		t.Fatal(err)
	}
}

// simulated delivers a message as from outside, with authentication results set by the test. It
// returns the code that SMTP would have answered.
func simulated(t *testing.T, s *servertest.Server, from, to, msg string, results map[string]string) int {
	t.Helper()
	a := s.API("POST", "/sandbox/inbound", map[string]any{
		"raw": base64.StdEncoding.EncodeToString([]byte(msg)), "mail_from": from, "rcpt_to": []string{to}, "check_results": results,
	})
	type reply struct {
		SMTPCode int `json:"smtp_code"`
	}
	var said struct {
		reply
		Recipients []reply
	}
	a.Decode(t, &said)
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if at := said.Recipients[0].SMTPCode; at != 250 {
		return at
	}
	return said.SMTPCode
}

// wentOut waits until n messages were captured for an outside address, and returns MAIL FROM and
// bytes of the newest.
func wentOut(t *testing.T, s *servertest.Server, to string, n int) (from, text string) {
	t.Helper()
	servertest.Eventually(t, func() string {
		var all struct {
			Data []struct {
				ID       string
				Envelope struct {
					MailFrom string   `json:"mail_from"`
					RcptTo   []string `json:"rcpt_to"`
				}
			}
		}
		s.API("GET", "/sandbox/outbox?limit=100", nil).Decode(t, &all)
		found := 0
		for _, one := range all.Data {
			if len(one.Envelope.RcptTo) != 1 || one.Envelope.RcptTo[0] != to {
				continue
			}
			if found++; found == 1 {
				from, text = one.Envelope.MailFrom, string(s.API("GET", "/sandbox/outbox/"+one.ID+"/raw", nil).Body)
			}
		}
		if found != n {
			return fmt.Sprintf("%d messages went to %s, want %d", found, to, n)
		}
		return ""
	})
	return from, text
}

// eachOutsider runs f against the service on each engine, with remote hosts.
func eachOutsider(t *testing.T, f func(t *testing.T, s *servertest.Server)) {
	dbtest.EachURL(t, func(t *testing.T, url string) { f(t, newOutsider(t, servertest.Database(url)).s) })
}

const question = "From: Ann <ann@good.com>\r\nTo: alice@demo.test\r\nSubject: =?utf-8?q?Caf=C3=A9=3F?=\r\nMessage-ID: <q2@good.com>\r\n" +
	"References: <q0@good.com> <q1@good.com>\r\n\r\nWhen?\r\n"

// An outside sender gets one vacation reply, which is marked so that no other system replies to it.
func TestVacationReply(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c, ctx, alice := clientOf(t, s), t.Context(), s.Dev.Mailboxes[0].ID.String()
		name := "Alice Ä"
		if _, err := c.UpdateMailbox(ctx, alice, client.MailboxChange{DisplayName: &name}); err != nil {
			t.Fatal(err)
		}
		if v, err := c.GetVacation(ctx, alice); err != nil || v.Enabled || v.IntervalDays != 7 || v.UpdatedAt != nil {
			t.Errorf("at first %+v, %v", v, err)
		}
		set := func(v client.NewVacation) *client.Vacation {
			t.Helper()
			got, err := c.SetVacation(ctx, alice, v)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		answered := 0
		ask := func(what, from string, want int) {
			t.Helper()
			if err := mx(t, s, from, strings.ReplaceAll(question, "ann@good.com", from), "alice@demo.test"); err != nil {
				t.Fatal(err)
			}
			if n := count(t, s, answersOf, 0); n != answered+want {
				t.Errorf("%s: answered %d times, want %d", what, n-answered, want)
			}
			answered += want
		}
		v := client.NewVacation{Enabled: true, Text: "Back on Monday.\n\n– Alice"}
		if got := set(v); !got.Enabled || got.Text != v.Text || got.IntervalDays != 7 || got.Subject != "" || got.UpdatedAt == nil || got.StartsAt != nil {
			t.Errorf("set %+v", got)
		}
		ask("the first", "ann@good.com", 1)
		from, text := wentOut(t, s, "ann@good.com", 1)
		head, body, _ := strings.Cut(text, "\r\n\r\n")
		head = strings.ReplaceAll(head, "\r\n ", " ")
		for _, want := range []string{
			"Auto-Submitted: auto-replied\r\n", "From: =?utf-8?", "<alice@demo.test>\r\n", "To: ann@good.com\r\n", "In-Reply-To: <q2@good.com>\r\n",
			"References: <q0@good.com> <q1@good.com> <q2@good.com>\r\n", "Subject: =?utf-8?b?QXV0bzogQ2Fmw6k/?=\r\n", "DKIM-Signature: v=1;", "d=demo.test",
		} {
			if !strings.Contains(head+"\r\n", want) {
				t.Errorf("the answer lacks %q:\n%s", want, head)
			}
		}
		if from != "" || !strings.Contains(body, "Back on Monday.") {
			t.Errorf("from %q:\n%s", from, body)
		}
		if text := arrived(t, s, 0, 1); !strings.HasSuffix(text, "When?\r\n") {
			t.Errorf("what was answered is\n%s", text)
		}

		ask("again", "ann@good.com", 0)
		ask("in other letters", "ANN@good.com", 0)
		ask("another", "ben@good.com", 1)
		set(v)
		ask("nothing was changed", "ann@good.com", 0)
		dbtest.Exec(t, s.DB, longAgo.With(s.Dev.Mailboxes[0].ID, (6*24*time.Hour).Microseconds()))
		ask("after 6 days", "ann@good.com", 0)
		dbtest.Exec(t, s.DB, longAgo.With(s.Dev.Mailboxes[0].ID, (24*time.Hour).Microseconds()))
		ask("after 7 days", "ann@good.com", 1)
		ask("just after that", "ann@good.com", 0)
		v.Text = "Back on Tuesday."
		set(v)
		ask("another text", "ann@good.com", 1)
		v.Subject = "Away"
		set(v)
		ask("another subject", "ann@good.com", 1)
		if _, text := wentOut(t, s, "ann@good.com", 4); !strings.Contains(text, "Subject: Away\r\n") || !strings.Contains(text, "Tuesday") {
			t.Errorf("then the answer is\n%s", text)
		}
		v.Enabled = false
		set(v)
		ask("turned off", "ann@good.com", 0)
		v.Enabled = true
		set(v)
		ask("turned on", "ann@good.com", 1)
		soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
		v.Text, v.StartsAt = "Later", &soon
		set(v)
		ask("before the start", "ann@good.com", 0)
		v.StartsAt, v.EndsAt = &past, &soon
		set(v)
		ask("within the time", "ann@good.com", 1)
		if err := c.DeleteVacation(ctx, alice); err != nil {
			t.Fatal(err)
		}
		ask("deleted", "ann@good.com", 0)
		if v, err := c.GetVacation(ctx, alice); err != nil || v.Enabled || v.Text != "" {
			t.Errorf("deleted %+v, %v", v, err)
		}
		set(v)
		ask("set anew", "ann@good.com", 1)
	})
}

// Machines, lists, unauthenticated senders, and mail that is not addressed to the mailbox get no
// vacation reply. All their mail arrives.
func TestVacationIsSilent(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, ctx, alice := clientOf(t, s), t.Context(), s.Dev.Mailboxes[0].ID.String()
		if _, err := c.SetVacation(ctx, alice, client.NewVacation{Enabled: true, Text: "Away."}); err != nil {
			t.Fatal(err)
		}
		for _, a := range []string{"help@demo.test", "*@demo.test"} {
			if _, err := c.CreateAlias(ctx, a, alice); err != nil {
				t.Fatal(err)
			}
		}
		if a := s.API("POST", "/suppressions", map[string]any{"email": "listed@away.example.net"}); a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		pass := map[string]string{"spf": "pass"}
		n := 0
		try := func(what, from, to, fields string, results map[string]string, want int) {
			t.Helper()
			n++
			if from == "" {
				from = fmt.Sprintf("p%d@away.example.net", n)
			}
			if from == "<>" {
				from = ""
			}
			if !strings.Contains(fields, "To: ") {
				fields += "To: Alice <" + to + ">\r\n"
			}
			if !strings.Contains(fields, "From: ") {
				fields += "From: p@away.example.net\r\n"
			}
			before := count(t, s, answersOf, 0)
			if code := simulated(t, s, from, to, fields+"Subject: Hi\r\n\r\nHi\r\n", results); code != 250 {
				t.Errorf("%s: %d", what, code)
			}
			if got := count(t, s, answersOf, 0) - before; got != want {
				t.Errorf("%s: answered %d times, want %d", what, got, want)
			}
		}
		const box = "alice@demo.test"
		try("plain", "", box, "", pass, 1)
		try("Auto-Submitted: no", "", box, "Auto-Submitted: No (a person)\r\n", pass, 1)
		try("no reports of reading", "", box, "X-Auto-Response-Suppress: DR, RN, NRN\r\n", pass, 1)
		try("DMARC without SPF", "", box, "", map[string]string{"dkim": "pass", "dmarc": "pass"}, 0)
		try("an alias", "", "help@demo.test", "", pass, 1)
		try("a plus-address", "plus@away.example.net", "alice+shop@demo.test", "", pass, 1)
		if _, text := wentOut(t, s, "plus@away.example.net", 1); !strings.Contains(text, "From: alice+shop@demo.test\r\n") {
			t.Errorf("the plus-address answers\n%s", text)
		}
		try("in Cc", "", box, "To: x@away.example.net\r\nCc: y@away.example.net, ALICE@demo.test\r\n", pass, 1)

		for _, f := range []string{
			"Auto-Submitted: auto-generated", "Auto-Submitted: auto-replied; owner=x", "List-Id: <a.b>", "List-Unsubscribe: <https://x.example/>",
			"Precedence: bulk", "Precedence: List", "Precedence: junk", "X-Auto-Response-Suppress: OOF", "X-Autoreply: yes", "X-Failed-Recipients: x@example.org",
			"Content-Type: multipart/report; boundary=x", "From: noreply@away.example.net", "From: No-Reply <do_not_reply@away.example.net>",
			"To: x@away.example.net", "To: undisclosed-recipients:;", "To: alice@demo.test.example.net",
		} {
			try(f, "", box, f+"\r\n", pass, 0)
		}
		for _, from := range []string{
			"<>", "mailer-daemon@away.example.net", "Postmaster@away.example.net", "no-reply@away.example.net", "donotreply@away.example.net",
			"news-request@away.example.net", "owner-news@away.example.net", "news-bounces+p=x@away.example.net", "listed@away.example.net",
			box, "alice+x@demo.test", "help@demo.test",
		} {
			try("from "+from, from, box, "", pass, 0)
		}
		for what, v := range map[string]map[string]string{
			"nobody speaks for it": {"spf": "none"}, "softfail": {"spf": "softfail", "dkim": "pass"}, "DMARC fails": {"spf": "pass", "dmarc": "fail"},
			"spam": {"spf": "pass", "spam": "spam"},
		} {
			try(what, "", box, "", v, 0)
		}
		// DMARC passes for the author's domain, but not for the one that would get the reply.
		try("another's DMARC", "", box, "From: p@good.com\r\n", map[string]string{"spf": "fail", "dkim": "pass", "dmarc": "pass"}, 0)
		try("a catch-all", "", "anything@demo.test", "", pass, 0)
		try("postmaster", "", "postmaster@demo.test", "", pass, 0)

		acc, err := s.Accounts.ByEmail(ctx, "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Limits.SetOverrides(ctx, acc.ID, quota.AccountLimits{Rates: quota.Rates{SendsPerHour: 1}}); err != nil {
			t.Fatal(err)
		}
		try("over the limit", "", box, "", pass, 0)
	})
}

// A replayed signed message causes no vacation reply to its author, for its original mailbox or
// another one, and no report of a forward.
func TestVacationReplayed(t *testing.T) {
	o := newOutsider(t)
	s, c, ctx := o.s, clientOf(t, o.s), t.Context()
	if _, err := c.SetVacation(ctx, s.Dev.Mailboxes[0].ID.String(), client.NewVacation{Enabled: true, Text: "Away."}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateAlias(ctx, "out@demo.test", away); err != nil {
		t.Fatal(err)
	}
	signed := testMail("replayed", "a@bank.com")
	sig, err := o.sign.Sign([]byte(signed))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if answer := o.send("a@bank.com", string(sig)+signed); answer != "" {
			t.Errorf("brought for the %d. time: %s", n+1, answer)
		}
	}
	if got := o.shown()["replayed"]; got != "INBOX spf=fail dkim=pass dmarc=pass" {
		t.Errorf("alice has it as %s", got)
	}
	if n := count(t, s, answersOf, 0); n != 0 {
		t.Errorf("a replayed message is answered %d times", n)
	}
	if err := mx(t, s, "a@bank.com", string(sig)+signed, "out@demo.test"); err != nil {
		t.Fatal(err)
	}
	if from, _ := wentOut(t, s, away, 1); from != "postmaster@demo.test" {
		t.Errorf("it goes on from %s", from)
	}
	// The same author, from a host in the domain's SPF record.
	if answer := o.send("a@good.com", testMail("own", "a@good.com")); answer != "" {
		t.Error(answer)
	}
	if n := count(t, s, answersOf, 0); n != 1 {
		t.Errorf("answered %d times", n)
	}
}

// Concurrent messages of one sender get one reply.
func TestVacationRace(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c, alice := clientOf(t, s), s.Dev.Mailboxes[0].ID.String()
		if _, err := c.SetVacation(t.Context(), alice, client.NewVacation{Enabled: true, Text: "Away."}); err != nil {
			t.Fatal(err)
		}
		const many = 20
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if err := mx(t, s, "ann@good.com", question, "alice@demo.test"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := count(t, s, answersOf, 0); n != 1 {
			t.Errorf("answered %d times", n)
		}
		arrived(t, s, 0, many)
		wentOut(t, s, "ann@good.com", 1)
	})
}

// Two mailboxes with vacation replies answer each other once only.
func TestVacationsMeet(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		for _, box := range s.Dev.Mailboxes {
			if _, err := c.SetVacation(t.Context(), box.ID.String(), client.NewVacation{Enabled: true, Text: box.Address + " is away."}); err != nil {
				t.Fatal(err)
			}
		}
		submitted(t, s, 1, "From: bob@demo.test\r\nTo: alice@demo.test\r\nSubject: Hi\r\nMessage-ID: <1@demo.test>\r\n\r\nHi\r\n", "alice@demo.test")
		arrived(t, s, 0, 1)
		if text := arrived(t, s, 1, 1); !strings.Contains(text, "alice@demo.test is away.") || !strings.Contains(text, "Return-Path: <>\r\n") || !strings.Contains(text, "In-Reply-To: <1@demo.test>\r\n") {
			t.Errorf("bob got\n%s", text)
		}
		if a, b := count(t, s, answersOf, 0), count(t, s, answersOf, 1); a != 1 || b != 1 { // bob's count is the message that he submitted
			t.Errorf("alice sent %d messages, bob %d", a, b)
		}
		// The application's own return paths are for reports.
		if a := s.API("POST", "/outbound/send", map[string]any{"from_email": "bob@demo.test", "to": []string{"alice@demo.test"}, "subject": "Hi", "text": "Hi"}); a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		arrived(t, s, 0, 2)
		if n := count(t, s, answersOf, 0); n != 1 {
			t.Errorf("alice sent %d messages", n)
		}
	})
}

// All field errors are returned together, with the API's names.
func TestVacationFields(t *testing.T) {
	s := servertest.Start(t)
	path := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/vacation"
	faults := func(body any) (all string) {
		t.Helper()
		a := s.API("PUT", path, body)
		var p struct {
			Errors []struct{ Field, Code string }
		}
		a.Decode(t, &p)
		if a.Status != 422 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		for _, e := range p.Errors {
			all += e.Field + " " + e.Code + ";"
		}
		return all
	}
	type m = map[string]any
	now := time.Now().UTC()
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	for want, body := range map[string]m{
		"text required;": {},
		"interval_days out_of_range;text invalid_text;subject invalid_subject;ends_at before_start;": {
			"text": strings.Repeat("x", 16<<10+1), "subject": "a\nb", "interval_days": 91, "starts_at": at(time.Hour), "ends_at": at(0)},
		"interval_days out_of_range;text invalid_text;": {"text": "a\x00b", "interval_days": 0},
		"ends_at past;":            {"text": "x", "ends_at": at(-time.Hour)},
		"subject invalid_subject;": {"text": "x", "subject": strings.Repeat("ä", 101)},
	} {
		if got := faults(body); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if a := s.API("PUT", path, m{"enabled": false, "ends_at": at(-time.Hour)}); a.Status != 200 {
		t.Errorf("what is over may be kept: %d %s", a.Status, a.Body)
	}
}

var lockAnswers = db.SQL(`LOCK TABLE vacation_reply`)

// Deleting a mailbox while its vacation reply is prepared does not keep others from getting the
// message.
func TestVacationOfWhoIsDeleted(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		if s.DB.Engine() != db.Postgres {
			return // on SQLite a reader can't be made to wait
		}
		ctx, c, alice := t.Context(), clientOf(t, s), s.Dev.Mailboxes[0].ID.String()
		if _, err := c.SetVacation(ctx, alice, client.NewVacation{Enabled: true, Text: "Away."}); err != nil {
			t.Fatal(err)
		}
		from, err := smtp.Dial(s.Addr("smtp"))
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close() //nolint:errcheck // only a client
		if err := errors.Join(from.Mail("ann@good.com"), from.Rcpt("alice@demo.test"), from.Rcpt("bob@demo.test")); err != nil {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		err = s.DB.Tx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, lockAnswers.With()); err != nil {
				taken <- nil
				return err
			}
			go func() {
				w, err := from.Data()
				if err == nil {
					_, err = io.WriteString(w, question)
					err = errors.Join(err, w.Close())
				}
				taken <- err
			}()
			if err := dbtest.AwaitBlocked(ctx, s.DB, tx, "SELECT%FROM vacation_reply%"); err != nil {
				return err
			}
			return c.DeleteMailbox(ctx, alice)
		})
		if err := errors.Join(err, <-taken); err != nil {
			t.Fatal(err)
		}
		if a, b := count(t, s, heldBy, 0), count(t, s, heldBy, 1); a != 1 || b != 1 {
			t.Errorf("alice holds %d messages, bob %d", a, b)
		}
	})
}
