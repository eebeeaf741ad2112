// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/smtpd"
	"github.com/mailstead/mailstead/internal/thread"
)

var bytesOf = db.SQL(`SELECT b.bytes FROM message m JOIN blob b ON b.id = m.blob WHERE m.mailbox = $1`)

// The whole path from a socket on port 25 into a mailbox.
func TestIntoMailbox(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		_, boxes, first := startSubmission(t, d, smtpd.MX)
		files, err := blob.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		blobs := &blob.Store{DB: d, Files: files, Now: time.Now}
		events := &event.Log{DB: d, Hub: boxes.Hub, Now: time.Now}
		folders := folder.New(folder.Options{DB: d, Blobs: blobs, Events: events, Hub: boxes.Hub, Now: time.Now, Log: discard})
		boxes.CreateFolders = folders.Provision
		boxes.FindHosted = func(_ context.Context, name string) (domain.HostedDomain, bool, error) {
			return domain.HostedDomain{Domain: first.Domain, Account: first.Account}, name == "demo.test", nil
		}
		bob, _, err := boxes.Create(ctx, first.Account, mailbox.CreateParams{Domain: first.Domain, LocalPart: "bob", QuotaMB: new(1)})
		if err != nil {
			t.Fatal(err)
		}
		in := inbound.New(inbound.Options{Host: "mail.host.test", Key: testkit.Key(t), Blobs: blobs, Events: events, Mailboxes: boxes, Folders: folders, Now: time.Now, Log: discard,
			Threads: &thread.Threads{NewID: d.NewID, Sources: []thread.Source{folders}}})
		listener := open(t, func(s *smtpd.Server) { s.Backend = &smtpd.InboundBackend{Inbound: in} })
		c := listener.dial()
		c.want("220 ")
		c.say("EHLO client.example", "250 ")
		c.say("MAIL FROM:<ann@example.com> SIZE=2000000", "250 ")
		c.say("RCPT TO:<bob@demo.test>", "552 5.3.4")
		c.say("RCPT TO:<nobody@demo.test>", "550 5.1.1")
		c.say("RCPT TO:<bob@elsewhere.test>", "550 5.7.1")
		c.say("RSET", "250 ")
		c.say("MAIL FROM:<ann@example.com>", "250 ")
		c.say("RCPT TO:<bob+x@demo.test>", "250 ")
		c.say("DATA", "354 ")
		c.say("Subject: hi\r\n\r\nhello\r\n.", "250 2.0.0")
		var got []byte
		if err := d.One(ctx, bytesOf.With(bob.ID), &got); err != nil {
			t.Fatal(err)
		}
		text := string(got)
		if !strings.HasPrefix(text, "Return-Path: <ann@example.com>\r\nDelivered-To: bob+x@demo.test\r\nReceived: from client.example") ||
			!strings.Contains(text, "for <bob+x@demo.test>") || !strings.HasSuffix(text, "Subject: hi\r\n\r\nhello\r\n") {
			t.Errorf("filed\n%s", text)
		}
		c.say("MAIL FROM:<ann@example.com>", "250 ")
		c.say("RCPT TO:<bob@demo.test>", "250 ")
		c.say("DATA", "354 ")
		c.say("Delivered-To: bob@demo.test\r\n\r\n.", "554 5.4.6")
		// A message that RCPT accepted is filed even if it exceeds the quota. The next one is
		// rejected.
		c.say("MAIL FROM:<ann@example.com>", "250 ")
		c.say("RCPT TO:<bob@demo.test>", "250 ")
		c.say("DATA", "354 ")
		c.say("Subject: large\r\n\r\n"+strings.Repeat("0123456789\r\n", 100_000)+".", "250 ")
		c.say("MAIL FROM:<ann@example.com>", "250 ")
		c.say("RCPT TO:<bob@demo.test>", "452 4.2.2")

		// The same applies if INBOX is full: earlier messages are filed.
		if _, _, err := boxes.Create(ctx, first.Account, mailbox.CreateParams{Domain: first.Domain, LocalPart: "carol"}); err != nil {
			t.Fatal(err)
		}
		folders.MaxMessages, boxes.RemainingMessages = 1, folders.RemainingMessages
		c.say("RSET", "250 ")
		c.say("MAIL FROM:<ann@example.com>", "250 ")
		c.say("RCPT TO:<carol@demo.test>", "250 ")
		late := listener.dial()
		late.want("220 ")
		late.say("EHLO client.example", "250 ")
		late.say("MAIL FROM:<ann@example.com>", "250 ")
		late.say("RCPT TO:<carol@demo.test>", "250 ")
		for _, c := range []*client{c, late} {
			c.say("DATA", "354 ")
			c.say("Subject: hi\r\n\r\nhello\r\n.", "250 2.0.0")
		}
		c.say("MAIL FROM:<ann@example.com>", "250 ")
		c.say("RCPT TO:<carol@demo.test>", "452 4.2.2")
	})
}
