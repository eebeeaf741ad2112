// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

func (h *fixture) alias(addr string, to ...mailbox.Mailbox) {
	h.t.Helper()
	var targets []string
	for _, one := range to {
		targets = append(targets, one.ID.String())
	}
	if _, err := h.boxes.CreateAlias(h.t.Context(), h.account, addr, targets); err != nil {
		h.t.Fatal(err)
	}
}

// Each mailbox behind aliases gets a message once, even if it is named several times.
func TestAcceptForAliases(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		bob, carol, full := h.box("bob", 10), h.box("carol", 10), h.box("full", 1)
		dbtest.Exec(h.t, h.db, mailbox.AddUsage(full.ID, mailbox.Usage{Bytes: 1 << 20, Messages: 1}))
		h.alias("team@demo.test", bob, carol, full)
		h.alias("shop@demo.test", bob)
		h.alias("stuffed@demo.test", full)
		h.alias("*@demo.test", carol)
		if _, err := h.send(mail, "team+x@demo.test", "shop@demo.test", "bob@demo.test"); err != nil {
			t.Fatal(err)
		}
		for box, want := range map[mailbox.Mailbox]int{bob: 1, carol: 1, full: 0} {
			all := h.filed(box)
			if len(all) != want {
				t.Fatalf("%s has %d messages", box.Address, len(all))
			}
			if want > 0 && !strings.Contains(all[0].text, "\r\nDelivered-To: team+x@demo.test\r\n") {
				t.Errorf("%s begins with\n%.300s", box.Address, all[0].text)
			}
		}
		arrived := h.events(event.InboundEmail)
		if len(arrived) != 2 || !strings.Contains(arrived[0], `"rcpt_to":["team+x@demo.test","shop@demo.test","bob@demo.test"]`) || !strings.Contains(arrived[0], `"subaddress":"x"`) {
			t.Errorf("the events: %s", arrived)
		}
		if _, err := h.send(mail, "whoever@demo.test"); err != nil || len(h.filed(carol)) != 2 {
			t.Errorf("the catch-all: %v, carol has %d", err, len(h.filed(carol)))
		}
		l := h.Begin(nil, 0)
		wantKind(t, l.AddRecipient(t.Context(), addr(t, "stuffed@demo.test")), fault.OverQuota, mailbox.CodeMailboxFull)
	})
}

// A message that went through an alias and comes back to it is a loop.
func TestAliasLoop(t *testing.T) {
	each(t, func(h *fixture) {
		h.alias("team@demo.test", h.box("bob", 10))
		_, err := h.send("Delivered-To: Team@demo.test\r\nSubject: again\r\n\r\n", "team@demo.test")
		wantKind(h.t, err, fault.Denied, "mail_loop")
	})
}

// One message is filed for a limited number of mailboxes in one commit.
func TestTooManyCopies(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		h.SetMaxCopies(3)
		a, b, c := h.box("a", 1), h.box("b", 1), h.box("c", 1)
		h.box("d", 1)
		h.alias("two@demo.test", a, b)
		h.alias("more@demo.test", b, c)
		l := h.Begin(nil, 0)
		for _, to := range []string{"two@demo.test", "more@demo.test", "a@demo.test"} {
			if err := l.AddRecipient(ctx, addr(t, to)); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		}
		wantKind(t, l.AddRecipient(ctx, addr(t, "d@demo.test")), fault.RateLimited, "too_many_recipients")
		if _, err := l.ReceiveMessage(ctx, received, strings.NewReader(mail)); err != nil || len(h.filed(c)) != 1 {
			t.Errorf("the message: %v", err)
		}
	})
}

// The local delivery agent files for all mailboxes behind an alias at once, and only once.
func TestAgentForAliases(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob, carol, full := h.box("bob", 10), h.box("carol", 10), h.box("full", 1)
		dbtest.Exec(h.t, h.db, mailbox.AddUsage(full.ID, mailbox.Usage{Bytes: 1 << 20, Messages: 1}))
		h.alias("team@demo.test", full, bob, carol)
		m := h.outgoing(100)
		c := &queue.Transaction{Mail: m, From: "ann@demo.test", Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: "team@demo.test"}}}
		for range 2 { // the second time, only the outcome was lost
			if o := h.File(ctx, c); o[0].State != queue.Delivered {
				t.Errorf("outcomes %+v", o)
			}
		}
		for _, box := range []mailbox.Mailbox{bob, carol} {
			if all := h.filed(box); len(all) != 1 || all[0].outbound != m.ID {
				t.Errorf("%s has %+v", box.Address, all)
			}
		}
		if all := h.filed(full); len(all) != 0 {
			t.Errorf("the full mailbox has %+v", all)
		}
	})
}

// If a quota check fails, the message isn't accepted just because the alias also leads elsewhere or
// to another mailbox.
func TestCapacityUnknown(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		bob, carol := h.box("bob", 10), h.box("carol", 10)
		h.alias("team@demo.test", bob, carol)
		if _, err := h.boxes.CreateAlias(t.Context(), h.account, "out@demo.test", []string{bob.ID.String(), "far@away.example"}); err != nil {
			t.Fatal(err)
		}
		for _, first := range []string{"", "carol@demo.test"} {
			for _, to := range []string{"out@demo.test", "team@demo.test"} {
				if _, err := h.boxes.Route(t.Context(), addr(t, to)); err != nil { // cached from here on
					t.Fatal(err)
				}
				l := h.Begin(nil, 0)
				if first != "" {
					if err := l.AddRecipient(t.Context(), addr(t, first)); err != nil {
						t.Fatal(err)
					}
				}
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				if err := l.AddRecipient(gone, addr(t, to)); err == nil {
					t.Errorf("%s behind %q is accepted without a look at bob's room", to, first)
				}
			}
		}
	})
}
