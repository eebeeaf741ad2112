// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// secured starts a session on port 465.
func (d *listener) secured() *client {
	d.t.Helper()
	c := d.dial()
	c.handshake()
	c.want("220 ")
	return c
}

// answers returns the whole reply to a command.
func (c *client) answers(line string) string {
	c.t.Helper()
	c.send(line + "\r\n")
	var all []string
	for {
		got := c.line()
		all = append(all, got)
		if len(got) < 4 || got[3] != '-' {
			return strings.Join(all, "\n")
		}
	}
}

func TestDSNParameters(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, _, _ := startSubmission(t, database, smtpd.SubmissionTLS)
		c := d.secured()
		if got := c.answers("EHLO client.example"); !strings.Contains(got, "\n250-DSN\n") {
			t.Errorf("EHLO says\n%s", got)
		}
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+password), "235 2.7.0")
		for _, bad := range []string{
			"RET=ALL", "RET=", "RET", "RET=FULL RET=HDRS", "ENVID=", "ENVID=a+0Ab", "ENVID=" + strings.Repeat("a", 101), "ENVID=a ENVID=b", "ENVID=a=b",
		} {
			c.say("MAIL FROM:<ann@demo.test> "+bad, "501 5.5.4")
		}
		c.say("MAIL FROM:<ann@demo.test> NOTIFY=NEVER", "555 5.5.4")
		c.say("MAIL FROM:<ann@demo.test> RET=full ENVID=order+207 SIZE=100", "250 ")
		for _, bad := range []string{
			"NOTIFY=", "NOTIFY=NEVER,SUCCESS", "NOTIFY=SOMETIMES", "NOTIFY=DELAY NOTIFY=DELAY", "ORCPT=bob@demo.test", "ORCPT=rfc822;", "ORCPT=rfc822;a+b",
			"ORCPT=rfc822;" + strings.Repeat("a", 500),
		} {
			c.say("RCPT TO:<bob@demo.test> "+bad, "501 5.5.4")
		}
		c.say("RCPT TO:<bob@demo.test> RET=FULL", "555 5.5.4")
		c.say("RCPT TO:<bob@demo.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;b+2Bx@demo.test", "250 ")
		c.say("RCPT TO:<eve@demo.test>", "250 ")
		c.say("RCPT TO:<never@demo.test> notify=never", "250 ")
		c.say("DATA", "354 ")
		c.say("hi\r\n.", "250 ")
		got := d.taken()[0]
		want := []smtpd.RcptOptions{{Notify: smtpclient.NotifySuccess | smtpclient.NotifyDelay, ORCPT: "rfc822;b+x@demo.test"}, {}, {Notify: smtpclient.NotifyNever}}
		if got.envelope.Ret != "FULL" || got.envelope.EnvID != "order 7" || fmt.Sprint(got.wants) != fmt.Sprint(want) {
			t.Errorf("took %+v", got)
		}
		// The next message starts with no options.
		c.say("MAIL FROM:<ann@demo.test>", "250 ")
		c.say("RCPT TO:<bob@demo.test>", "250 ")
		c.say("DATA", "354 ")
		c.say("hi\r\n.", "250 ")
		if got := d.taken()[1]; got.envelope.Ret != "" || got.envelope.EnvID != "" || got.wants[0] != (smtpd.RcptOptions{}) {
			t.Errorf("took %+v", got)
		}
	})
}

// The MX server ignores DSN options.
func TestNoDSNOnMX(t *testing.T) {
	c := open(t, nil).dial()
	c.want("220 ")
	if got := c.answers("EHLO client.example"); strings.Contains(got, "DSN") {
		t.Errorf("EHLO says\n%s", got)
	}
	c.say("MAIL FROM:<ann@example.com> RET=FULL", "555 5.5.4")
	c.say("MAIL FROM:<ann@example.com>", "250 ")
	c.say("RCPT TO:<bob@demo.test> NOTIFY=SUCCESS", "555 5.5.4")
	c.say("RCPT TO:<bob@demo.test>", "250 ")
}

// key creates an API key of the mailbox's account.
func key(t *testing.T, boxes *mailbox.Mailboxes, box mailbox.Mailbox, n account.KeyParams) (account.Key, string) {
	t.Helper()
	n.Name = "smtp"
	k, token, err := boxes.Accounts.CreateKey(t.Context(), box.Account, n)
	if err != nil {
		t.Fatal(err)
	}
	return k, token
}

// An API key is the password of the user api, while it is valid.
func TestKeyLogin(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		k, token := key(t, boxes, box, account.KeyParams{Scopes: []string{"outbound.send"}})
		c := d.secured()
		c.say("EHLO client.example", "250 ")
		c.say("AUTH PLAIN "+b64("\x00api\x00"+token+"x"), "535 5.7.8")
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+token), "535 5.7.8")
		c.say("AUTH LOGIN "+b64("API"), "334 UGFzc3dvcmQ6")
		c.say(b64(token), "235 2.7.0")
		for range 2 {
			c.say("MAIL FROM:<any.one@demo.test>", "250 ")
			c.say("RCPT TO:<bob@demo.test>", "250 ")
			c.say("DATA", "354 ")
			c.say("hi\r\n.", "250 ")
		}
		got := d.taken()
		if len(got) != 2 || got[1].envelope.Principal.Key != k.ID || got[1].envelope.Principal.Account != box.Account || got[1].envelope.Mailbox.ID != 0 || got[1].received.With != "ESMTPSA" {
			t.Errorf("took %+v", got)
		}
		if err := boxes.Accounts.DeleteKey(t.Context(), box.Account, k.ID); err != nil {
			t.Fatal(err)
		}
		c.say("MAIL FROM:<any.one@demo.test>", "421 4.7.0")
		c.wantEOF()
		c = d.secured()
		c.say("EHLO client.example", "250 ")
		c.say("AUTH PLAIN "+b64("\x00api\x00"+token), "535 5.7.8")
	})
}

func TestKeysThatMayNot(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		_, reads := key(t, boxes, box, account.KeyParams{Scopes: []string{"messages.read"}})
		_, away := key(t, boxes, box, account.KeyParams{Networks: []string{"192.0.2.0/24"}})
		_, brief := key(t, boxes, box, account.KeyParams{ExpiresAt: time.Now().Add(time.Hour)})
		_, all := key(t, boxes, box, account.KeyParams{})
		c := d.secured()
		c.say("EHLO client.example", "250 ")
		c.say("AUTH PLAIN "+b64("\x00api\x00"+reads), "535 5.7.13 This API key lacks the scope outbound.send")
		c.say("AUTH PLAIN "+b64("\x00api\x00"+away), "535 5.7.13 This API key may not be used from your address")
		c.say("AUTH PLAIN "+b64("\x00api\x00"), "535 5.7.8")
		c.say("AUTH PLAIN "+b64("\x00api\x00"+all), "235 ")
		c = d.secured()
		c.say("EHLO client.example", "250 ")
		c.say("AUTH PLAIN "+b64("\x00api\x00"+brief), "235 ")
		c.say("MAIL FROM:<ann@demo.test>", "250 ")
	})
}

// Guessing API keys is slowed down like guessing passwords, and ends the session.
func TestGuessingAtKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		_, token := key(t, boxes, box, account.KeyParams{})
		guess := func(c *client, n int) string {
			wrong := token[:len(token)-4] + fmt.Sprintf("%04d", n)
			return c.answers("AUTH PLAIN " + b64("\x00api\x00"+wrong))
		}
		c := d.secured()
		c.say("EHLO client.example", "250 ")
		for n := range 4 {
			if got := guess(c, n); !strings.HasPrefix(got, "535 5.7.8") {
				t.Fatal(got)
			}
		}
		if got := guess(c, 4); !strings.HasPrefix(got, "421 4.7.0") {
			t.Fatal(got)
		}
		c.wantEOF()
		boxes.Logins.Sleep = func(context.Context, time.Duration) error { return nil }
		for n := range 5 {
			nobody := []ratelimit.Credential{boxes.Logins.HashedCredential("mailbox", "")}
			_, err := boxes.Logins.Try(t.Context(), netip.MustParseAddr("127.0.0.1"), fmt.Sprint(n), nobody, func([]ratelimit.Credential) (ratelimit.Credential, error) { return "", nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		c = d.secured()
		c.say("EHLO client.example", "250 ")
		if got := guess(c, 99); !strings.HasPrefix(got, "454 4.7.0 Too many failed logins") {
			t.Fatal(got)
		}
	})
}
