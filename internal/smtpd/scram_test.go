// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/xdg-go/scram"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// offerScram makes a server offer SCRAM-SHA-256 for the mailbox's password.
func offerScram(t *testing.T, boxes *mailbox.Mailboxes, box mailbox.Mailbox) {
	t.Helper()
	boxes.SCRAM = &credential.SCRAM{Hasher: boxes.Hasher, Key: []byte("a secret of this house"), Offered: true}
	if _, err := boxes.SetPassword(t.Context(), box.Account, box.ID, new(password)); err != nil {
		t.Fatal(err)
	}
}

// speaker is the client side of SCRAM-SHA-256: says returns the response to a reply.
func (c *client) speaker(user, pw string) (conv *scram.ClientConversation, says func(reply string) string) {
	c.t.Helper()
	made, err := scram.SHA256.NewClient(user, pw, "")
	if err != nil {
		c.t.Fatal(err)
	}
	conv = made.NewConversation()
	return conv, func(reply string) string {
		c.t.Helper()
		challenge, err := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(reply, "334 ")))
		if err != nil {
			c.t.Fatalf("%q: %v", reply, err)
		}
		text, err := conv.Step(string(challenge))
		if err != nil {
			c.t.Fatal(err)
		}
		return b64(text)
	}
}

// scramAuth runs an exchange, and returns its last reply.
func (c *client) scramAuth(user, pw string, initial bool) (last string) {
	c.t.Helper()
	conv, says := c.speaker(user, pw)
	reply := ""
	if initial {
		reply = c.answers("AUTH SCRAM-SHA-256 " + says(""))
	} else {
		c.say("AUTH SCRAM-SHA-256", "334 ")
		reply = c.answers(says(""))
	}
	for range 2 {
		if !strings.HasPrefix(reply, "334 ") {
			return reply
		}
		reply = c.answers(says(reply))
	}
	if !conv.Valid() {
		c.t.Fatal("the server has not proved that it knows the password")
	}
	return reply
}

func TestScram(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.Submission)
		wants := func(got, want string) {
			t.Helper()
			if !strings.HasPrefix(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		offerScram(t, boxes, box)
		c := d.dial()
		c.want("220 ")
		wants(c.answers("AUTH SCRAM-SHA-256"), "538 5.7.11")
		c.say("STARTTLS", "220 ")
		c.handshake()
		c.say("EHLO [192.0.2.1]", "250 AUTH SCRAM-SHA-256 PLAIN LOGIN")
		c.say("AUTH SCRAM-SHA-256-PLUS", "504 5.5.4 The mechanisms are SCRAM-SHA-256 PLAIN LOGIN")
		for _, first := range []string{"=", b64("x"), b64("n,,n=ann@demo.test"), b64("p=tls-exporter,,n=ann@demo.test,r=abc"), b64("n,a=eve,n=ann@demo.test,r=abc"), "???"} {
			c.say("AUTH SCRAM-SHA-256 "+first, "501 5.5.2")
		}
		for _, second := range []string{"", b64("c=biws,r=foreign,p=AAAA"), "???"} {
			c.say("AUTH SCRAM-SHA-256 "+b64("n,,n=ann@demo.test,r=abc"), "334 ")
			c.say(second, "501 5.5.2")
		}
		c.say("AUTH SCRAM-SHA-256 "+b64("n,,n=ann@demo.test,r=abc"), "334 ")
		c.say("*", "501 5.7.0")
		c.say("AUTH SCRAM-SHA-256 "+b64("n,,n=ann@demo.test,r=abc"), "334 ")
		c.say(strings.Repeat("A", 3000), "500 5.5.2")
		_, token := key(t, boxes, box, account.KeyParams{})
		wants(c.scramAuth("api", token, true), "504 5.5.4 The mechanisms for the user api are PLAIN and LOGIN")
		wants(c.scramAuth("ann@demo.test", "wrong", true), "535 5.7.8")
		wants(c.scramAuth("nobody@demo.test", password, false), "535 5.7.8")
		c.say("MAIL FROM:<ann@demo.test>", "530 5.7.0")
		wants(c.scramAuth("Ann@demo.test", password, false), "235 2.7.0")
		wants(c.answers("AUTH SCRAM-SHA-256"), "503 5.5.1")
		c.say("MAIL FROM:<ann@demo.test>", "250 ")
		c.say("RSET", "250 ")
		if _, err := boxes.SetPassword(t.Context(), box.Account, box.ID, nil); err != nil {
			t.Fatal(err)
		}
		c.say("MAIL FROM:<ann@demo.test>", "421 4.7.0")
		c.wantEOF()
	})
}

// Wrong guesses end the session as with PLAIN. A client that stops after our proof is not logged
// in.
func TestScramRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, boxes, box := startSubmission(t, database, smtpd.SubmissionTLS)
		c := d.secured()
		c.say("EHLO client.example", "250 AUTH PLAIN LOGIN")
		c.say("AUTH SCRAM-SHA-256 "+b64("n,,n=ann@demo.test,r=abc"), "504 5.5.4 The mechanisms are PLAIN LOGIN")
		offerScram(t, boxes, box)
		_, app, err := boxes.CreateAppPassword(t.Context(), box.Account, box.ID, "Phone", []string{"imap"})
		if err != nil {
			t.Fatal(err)
		}
		c = d.secured()
		c.say("EHLO client.example", "250 AUTH SCRAM-SHA-256 PLAIN LOGIN")
		if got := c.scramAuth("ann@demo.test", app, true); !strings.HasPrefix(got, "535 5.7.13") {
			t.Error(got)
		}
		boxes.Logins.Exempt = nil
		for range 3 {
			if got := c.scramAuth("nobody@demo.test", "wrong", true); !strings.HasPrefix(got, "535 5.7.8") {
				t.Error(got)
			}
		}
		if got := c.scramAuth("nobody@demo.test", "wrong", true); !strings.HasPrefix(got, "421 4.7.0") {
			t.Error(got)
		}
		c.wantEOF()

		for _, last := range []string{"*", "eA=="} {
			c = d.secured()
			c.say("EHLO client.example", "250 ")
			_, says := c.speaker("ann@demo.test", password)
			c.answers(says(c.answers("AUTH SCRAM-SHA-256 " + says(""))))
			c.say(last, "501 5.")
			c.say("MAIL FROM:<ann@demo.test>", "530 5.7.0")
		}
	})
}
