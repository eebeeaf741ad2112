// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpd"
)

const password = "Correct-horse-7"

// startSubmission starts a submission server with the mailbox ann@demo.test.
func startSubmission(t *testing.T, d *db.DB, mode smtpd.Mode) (*listener, *mailbox.Mailboxes, mailbox.Mailbox) {
	t.Helper()
	ctx, hub := t.Context(), &notify.Hub{}
	accounts := account.New(d, hub, time.Now)
	owner, err := accounts.Create(ctx, "owner@example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	domain := testkit.AddDomain(t, d, owner.ID, "demo.test", true)
	boxes := mailbox.Open(mailbox.Options{
		DB: d, Hub: hub, Accounts: accounts, Hasher: credential.NewHasherWithCost(credentialtest.Cost), Logins: ratelimit.NewLoginLimiter(d, []byte("a key"), nil), Now: time.Now,
		Events:        &event.Log{DB: d, Hub: hub, Now: time.Now},
		VerifiedName:  func(context.Context, db.ID, db.ID) (string, error) { return "demo.test", nil },
		CreateFolders: func(context.Context, *db.Tx, db.ID) error { return nil },
	})
	box, _, err := boxes.Create(ctx, owner.ID, mailbox.CreateParams{Domain: domain, LocalPart: "ann", Password: new(password)})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, func(s *smtpd.Server) { s.Mode, s.Mailboxes, s.Accounts, s.Hub = mode, boxes, accounts, hub }), boxes, box
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestSubmission(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.Submission)
		c := d.dial()
		c.want("220 ")
		c.say("EHLO [192.0.2.1]", "250 ")
		c.say("MAIL FROM:<ann@demo.test>", "530 5.7.0")
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+password), "538 5.7.11")
		c.say("STARTTLS", "220 ")
		c.handshake()
		c.say("EHLO [192.0.2.1]", "250 AUTH PLAIN LOGIN")
		c.say("AUTH CRAM-MD5", "504 5.5.4")
		c.say("AUTH PLAIN ???", "501 5.5.2")
		c.say("AUTH PLAIN "+b64("ann@demo.test"), "501 5.5.2")
		c.say("AUTH PLAIN "+b64("eve\x00ann@demo.test\x00"+password), "501 5.5.2")
		c.say("AUTH LOGIN", "334 VXNlcm5hbWU6")
		c.say("*", "501 5.7.0")
		c.say("AUTH PLAIN", "334 ")
		c.say(b64("\x00ann@demo.test\x00wrong"), "535 5.7.8")
		c.say("AUTH LOGIN "+b64("ann@demo.test"), "334 UGFzc3dvcmQ6")
		c.say(b64(password), "235 2.7.0")
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+password), "503 5.5.1")
		c.say("MAIL FROM:<ann@demo.test>", "250 ")
		c.say("RCPT TO:<bob@demo.test>", "250 ")
		c.say("DATA", "354 ")
		c.send("bare\nline ends are normalized behind the listener\r\n.\r\n")
		c.want("250 2.0.0")
		got := d.taken()
		if len(got) != 1 || got[0].body != "bare\nline ends are normalized behind the listener\r\n" {
			t.Fatalf("took %+v", got)
		}
		r := got[0].received
		if r.With != "ESMTPSA" || r.Helo != "" || r.Addr.IsValid() || r.For != "" || !strings.HasPrefix(r.TLS, "TLS 1.3 ") {
			t.Errorf("received %+v", r)
		}
		// Revoking the password ends the login made with it.
		if _, err := boxes.SetPassword(t.Context(), box.Account, box.ID, nil); err != nil {
			t.Fatal(err)
		}
		c.say("MAIL FROM:<ann@demo.test>", "421 4.7.0")
		c.wantEOF()
	})
}

// A message that ends after its login was revoked is not accepted.
func TestLoginEndsWithinMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		k, token := key(t, boxes, box, account.KeyParams{Scopes: []string{"outbound.send"}})
		begun := func(auth string) *client {
			c := d.secured()
			c.say("EHLO client.example", "250 ")
			c.say("AUTH PLAIN "+b64(auth), "235 2.7.0")
			c.say("MAIL FROM:<ann@demo.test>", "250 ")
			c.say("RCPT TO:<bob@demo.test>", "250 ")
			c.say("DATA", "354 ")
			return c
		}
		byPassword, byKey := begun("\x00ann@demo.test\x00"+password), begun("\x00api\x00"+token)
		suspended := begun("\x00ann@demo.test\x00" + password)
		if err := boxes.Accounts.SetStatus(t.Context(), box.Account, account.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		suspended.say("hi\r\n.", "421 4.7.0")
		suspended.wantEOF()
		if err := boxes.Accounts.SetStatus(t.Context(), box.Account, account.StatusActive); err != nil {
			t.Fatal(err)
		}
		if err := boxes.Accounts.DeleteKey(t.Context(), box.Account, k.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := boxes.SetPassword(t.Context(), box.Account, box.ID, nil); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*client{byKey, byPassword} {
			c.say("Subject: late\r\n\r\nhi\r\n.", "421 4.7.0")
			c.wantEOF()
		}
		if got := d.taken(); len(got) != 0 {
			t.Errorf("took %+v", got)
		}
	})
}

// If a login check fails with an error, the login is checked again, not trusted.
func TestRevocationOutlastsTrouble(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		rename := func(from, to string) {
			t.Helper()
			dbtest.Exec(t, database, db.SQL("ALTER TABLE "+from+" RENAME TO "+to).With())
		}
		c := d.dial()
		c.handshake()
		c.want("220 ")
		c.say("EHLO client.example", "250 ")
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+password), "235 2.7.0")
		if _, err := boxes.SetPassword(t.Context(), box.Account, box.ID, nil); err != nil {
			t.Fatal(err)
		}
		rename("mailbox_usage", "aside")
		c.say("MAIL FROM:<ann@demo.test>", "451 4.3.0")
		rename("aside", "mailbox_usage")
		c.say("MAIL FROM:<ann@demo.test>", "421 4.7.0")
		c.wantEOF()
	})
}

func TestGuessingEndsTheSession(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, _ := startSubmission(t, database, smtpd.SubmissionTLS)
		boxes.Logins.Exempt = nil
		c := d.dial()
		c.handshake()
		c.want("220 ")
		c.say("EHLO client.example", "250 ")
		wrong := "AUTH PLAIN " + b64("\x00ann@demo.test\x00the same each time") // so that nothing is delayed by the limiter
		for range 4 {
			c.say(wrong, "535 5.7.8")
		}
		c.say(wrong, "421 4.7.0")
		c.wantEOF()
	})
}

func TestEarlyTalker(t *testing.T) {
	d := open(t, func(s *smtpd.Server) { s.GreetDelay = time.Hour })
	c := d.dial()
	c.send("EHLO spam.example\r\n")
	c.want("554 5.5.1")
	c.wantEOF()
	d = open(t, func(s *smtpd.Server) { s.GreetDelay = time.Millisecond })
	d.dial().want("220 ")
}

func TestReceivedField(t *testing.T) {
	d := open(t, nil)
	c := d.dial()
	c.want("220 ")
	c.say("EHLO client.example", "250 ")
	for _, rcpts := range [][]string{{"bob"}, {"bob", "carol"}} {
		c.say("MAIL FROM:<ann@example.com> SMTPUTF8", "250 ")
		for _, name := range rcpts {
			c.say("RCPT TO:<"+name+"@demo.test>", "250 ")
		}
		c.say("DATA", "354 ")
		c.say("hi\r\n.", "250 ")
	}
	got := d.taken()
	one, two := got[0].received, got[1].received
	if one.Helo != "client.example" || !one.Addr.IsLoopback() || one.By != "mail.host.test" || one.With != "UTF8SMTP" || one.For != "bob@demo.test" {
		t.Errorf("received %+v", one)
	}
	if two.For != "" {
		t.Errorf("several recipients are told of each other: %q", two.For)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	d := open(t, nil)
	c := d.dial()
	c.want("220 ")
	for range 200 {
		c.say("NOOP", "250 ")
	}
	c.say("NOOP", "421 4.7.0")
	c.wantEOF()
}

// Shutdown lets a transaction finish and ends all other sessions.
func TestShutdown(t *testing.T) {
	d := open(t, nil)
	idle, busy := d.dial(), d.dial()
	idle.want("220 ")
	busy.want("220 ")
	busy.say("EHLO client.example", "250 ")
	busy.say("MAIL FROM:<ann@example.com>", "250 ")
	done := make(chan error, 1)
	go func() { done <- d.Shutdown(context.Background()) }()
	idle.want("421 4.3.2")
	idle.wantEOF()
	busy.say("RCPT TO:<bob@demo.test>", "250 ")
	busy.say("DATA", "354 ")
	busy.say("hi\r\n.", "250 ")
	busy.want("421 4.3.2")
	busy.wantEOF()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(d.taken()); n != 1 {
		t.Errorf("took %d messages", n)
	}
}

// When the time is over, sessions are closed; messages accepted by then stay accepted.
func TestShutdownCuts(t *testing.T) {
	d := open(t, nil)
	d.gate, d.reached = make(chan struct{}), make(chan struct{}, 1)
	c := d.dial()
	c.want("220 ")
	c.say("EHLO client.example", "250 ")
	c.say("MAIL FROM:<ann@example.com>", "250 ")
	c.say("RCPT TO:<bob@demo.test>", "250 ")
	c.say("DATA", "354 ")
	c.send("hi\r\n.\r\n")
	<-d.reached
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Shutdown(ctx) }()
	cancel()
	c.wantEOF()
	close(d.gate)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A session ends with the suspension of its account.
func TestAccountSuspended(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		c := d.secured()
		c.say("EHLO client.example", "250 AUTH PLAIN LOGIN")
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+password), "235 2.7.0")
		c.say("MAIL FROM:<ann@demo.test>", "250 ")
		c.say("RSET", "250 ")
		if err := boxes.Accounts.SetStatus(t.Context(), box.Account, account.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		c.say("MAIL FROM:<ann@demo.test>", "421 4.7.0")
		c.wantEOF()
	})
}

// A server that was never started shuts down without waiting, as after a failed start.
func TestShutdownUnopened(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // it may see either first: that no session is left, or that ctx has ended
		if err := new(smtpd.Server).Shutdown(over); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
