// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
)

const mail = "Return-Path: <forged@example.com>\r\nFrom: Ann <ann@example.com>\r\nTo: Bob <bob@demo.test>, carol@demo.test\r\n" +
	"Subject: =?UTF-8?Q?sch=C3=B6n?=\r\nDate: Mon, 2 Mar 2026 10:00:00 +0100\r\nMessage-ID: <1@example.com>\r\n" +
	"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nhello\r\n--x\r\nContent-Type: text/csv\r\nContent-Disposition: attachment\r\n\r\n1,2\r\n--x--\r\n"

var received = message.ReceivedField{Helo: "client.example", Addr: netip.MustParseAddr("192.0.2.7"), By: "mail.host.test", With: "ESMTPS"}

func wantKind(t testing.TB, err error, kind fault.Kind, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != kind || f.Code != code {
		t.Errorf("got %v, want kind %d with code %s", err, kind, code)
	}
}

// send receives a message for recipients that must all be accepted.
func (h *fixture) send(body string, to ...string) (db.ID, error) {
	h.t.Helper()
	from := addr(h.t, "ann@example.com")
	l := h.Begin(&from, int64(len(body)))
	for _, one := range to {
		if err := l.AddRecipient(h.t.Context(), addr(h.t, one)); err != nil {
			h.t.Fatalf("%s: %v", one, err)
		}
	}
	return l.ReceiveMessage(h.t.Context(), received, strings.NewReader(body))
}

func TestAccept(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		bob, carol := h.box("bob", 10), h.box("carol", 10)
		id, err := h.send(mail, "bob+news@demo.test", "Carol@demo.test", "carol+x@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		for box, as := range map[mailbox.Mailbox]string{bob: "bob+news@demo.test", carol: "Carol@demo.test"} {
			all := h.filed(box)
			if len(all) != 1 {
				t.Fatalf("%s has %d messages", box.Address, len(all))
			}
			got := all[0]
			head, rest, _ := strings.Cut(got.text, "From: Ann")
			want := "Return-Path: <ann@example.com>\r\nDelivered-To: " + as + "\r\nReceived: from client.example"
			if !strings.HasPrefix(head, want) || !strings.Contains(head, id.String()) || strings.Contains(head, "forged") {
				t.Errorf("%s begins with\n%s", box.Address, head)
			}
			if _, body, _ := strings.Cut(mail, "From: Ann"); rest != body {
				t.Errorf("%s goes on with\n%s", box.Address, rest)
			}
			var index message.Structure
			if err := index.UnmarshalBinary([]byte(got.structure)); err != nil {
				t.Fatal(err)
			}
			part := index.Part([]int{1}).Body
			if text := got.text[part.Start:part.End()]; text != "hello" || index.Size != int64(len(got.text)) {
				t.Errorf("part 1 is %q, the size %d", text, index.Size)
			}
			if got.messageID != "<1@example.com>" {
				t.Errorf("Message-ID %s", got.messageID)
			}
			now, err := h.boxes.ByID(t.Context(), box.ID)
			if err != nil || now.Used != mailbox.CountedSize(int64(len(got.text))) || now.Messages != 1 {
				t.Errorf("%s uses %d in %d, %v; it has %d", box.Address, now.Used, now.Messages, err, len(got.text))
			}
		}
		arrived := h.events(event.InboundEmail)
		if len(arrived) != 2 {
			t.Fatalf("%d events", len(arrived))
		}
		var data map[string]any
		if err := json.Unmarshal([]byte(arrived[0]), &data); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintln(data["mailbox"], data["subaddress"], data["envelope"], data["from"], data["to"], data["subject"], data["date"], data["check_results"], data["message_id"])
		want := "map[address:bob@demo.test id:" + bob.ID.String() + "] news map[mail_from:ann@example.com rcpt_to:[bob+news@demo.test]] [map[email:ann@example.com name:Ann]] " +
			"[map[email:bob@demo.test name:Bob] map[email:carol@demo.test name:<nil>]] schön 2026-03-02T09:00:00.000Z map[author:<nil> dkim:none dmarc:none spam:none spam_reasons:<nil> spam_score:<nil> spf:none] <1@example.com>"
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("the event says\n%s, want\n%s", got, want)
		}
		// The content is read only when the event is.
		if _, there := data["text"]; there || len(arrived[0]) > 1000 {
			t.Errorf("the event is recorded with %d bytes: %s", len(arrived[0]), arrived[0])
		}
		if !strings.Contains(arrived[1], `"rcpt_to":["Carol@demo.test","carol+x@demo.test"]`) {
			t.Errorf("the other event: %s", arrived[1])
		}
	})
}

// A large message is stored once for all its recipients, and each can read it.
func TestAcceptLarge(t *testing.T) {
	each(t, func(h *fixture) {
		bob, carol := h.box("bob", 10), h.box("carol", 10)
		body := strings.Repeat("0123456789abcdef\r\n", 30_000)
		if _, err := h.send("Subject: large\r\n\r\n"+body, "bob@demo.test", "carol@demo.test"); err != nil {
			h.t.Fatal(err)
		}
		for _, box := range []mailbox.Mailbox{bob, carol} {
			got := h.filed(box)[0].text
			if !strings.HasSuffix(got, "Subject: large\r\n\r\n"+body) || !strings.Contains(got, "Delivered-To: "+box.Address) {
				h.t.Errorf("%s has %d octets", box.Address, len(got))
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		h.box("bob", 1)
		l := h.Begin(nil, 2<<20)
		wantKind(t, l.AddRecipient(ctx, addr(t, "nobody@demo.test")), fault.NotFound, mailbox.CodeNoMailbox)
		wantKind(t, l.AddRecipient(ctx, addr(t, "bob@elsewhere.test")), fault.NotFound, mailbox.CodeDomainNotHosted)
		wantKind(t, l.AddRecipient(ctx, addr(t, "bob@demo.test")), fault.TooLarge, "message_over_quota")
		wantKind(t, l.AddRecipient(ctx, addr(t, "b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@demo.test")), fault.NotFound, mailbox.CodeNoMailbox)
		wantKind(t, l.AddRecipient(ctx, addr(t, "b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@elsewhere.test")), fault.NotFound, mailbox.CodeDomainNotHosted)
		_, err := h.send("Delivered-To: BOB@demo.test\r\n\r\n", "bob@demo.test")
		wantKind(t, err, fault.Denied, inbound.CodeLoop)
	})
}

// An interrupted transaction leaves nothing behind.
func TestBrokenOff(t *testing.T) {
	each(t, func(h *fixture) {
		bob := h.box("bob", 10)
		broken := errors.New("the line is dead")
		for _, body := range []string{"Subj", "Subject: x\r\n\r\nhalf a"} {
			l := h.Begin(nil, 0)
			if err := l.AddRecipient(h.t.Context(), addr(h.t, "bob@demo.test")); err != nil {
				h.t.Fatal(err)
			}
			_, err := l.ReceiveMessage(h.t.Context(), received, iotest.DataErrReader(&breaking{strings.NewReader(body), broken}))
			if !errors.Is(err, broken) {
				h.t.Errorf("got %v", err)
			}
		}
		if n := len(h.filed(bob)); n != 0 {
			h.t.Errorf("%d messages were filed", n)
		}
	})
}

type breaking struct {
	*strings.Reader
	err error
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.Len() == 0 {
		return 0, b.err
	}
	return b.Reader.Read(p)
}

var insertDelivery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at, lease,
		attempts, sequence, code, enhanced, reply, remote_host, updated_at)
	VALUES ($1, $2, $3, 'x@remote.example', 'to', 'remote.example', 'delivered', 0, 0, NULL, 1, 1, 250, '', '', '', 0)`)

// bounceReport returns a DSN about one recipient.
func bounceReport(action string) string {
	return "From: mailer-daemon@remote.example\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n" +
		"--b\r\n\r\nsorry\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.remote.example\r\n\r\n" +
		"Final-Recipient: rfc822; x@remote.example\r\nAction: " + action + "\r\nStatus: 5.1.1 (bad)\r\nRemote-MTA: dns; in.remote.example\r\n" +
		"Diagnostic-Code: smtp; 550 5.1.1 no\r\n such user\r\n--b--\r\n"
}

// A failure report to a signed return path bounces the delivery; other mail there changes nothing.
func TestReports(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		id := h.db.NewID()
		dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account), insertDelivery.With(id, 1, h.account))
		for n, text := range []string{bounceReport("Failed"), bounceReport("delayed"), "Subject: I am away\r\n\r\nuntil Monday\r\n"} {
			l := h.Begin(nil, 0)
			domain := "demo.test"
			if n == 1 {
				domain = "bounces.mail.host.test"
			}
			if err := l.AddRecipient(ctx, addr(t, strings.ToUpper(h.Key.ReturnPath(int64(id), n%2))+"@"+domain)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.ReceiveMessage(ctx, received, strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
		deliveries, err := h.Queue.Deliveries(ctx, id)
		if err != nil || len(deliveries) != 2 {
			t.Fatal(deliveries, err)
		}
		if deliveries[0].State != queue.Bounced || deliveries[1].State != queue.Delivered {
			t.Errorf("deliveries %+v", deliveries)
		}
		bounces := h.events(event.Bounce)
		if len(bounces) != 1 || !strings.Contains(bounces[0], `"5.1.1"`) || !strings.Contains(bounces[0], `"diagnostic":"no such user"`) ||
			!strings.Contains(bounces[0], "in.remote.example") {
			t.Errorf("bounces %s", bounces)
		}
	})
}
