// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	sentOnAll = db.SQL(`SELECT COUNT(*) FROM outbound_message WHERE forwarded NOT IN (0, $1)`)
	inJunk    = db.SQL(`SELECT messages FROM folder WHERE mailbox = $1 AND name = 'Junk'`)
)

// A forwarding loop does not keep other recipients from getting the message, and a message that is
// not forwarded is filed somewhere.
func TestHaltedCircles(t *testing.T) {
	const to, other = "From: ann@good.com\r\nTo: x@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", "bob@demo.test"
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		for address, targets := range map[string][]string{"out@demo.test": {away}, "free@demo.test": {away}, "both@demo.test": {away, s.Dev.Mailboxes[1].ID.String()}} {
			if _, err := c.CreateAlias(t.Context(), address, targets...); err != nil {
				t.Fatal(err)
			}
		}
		a, b, junk, out := 0, 0, 0, 0
		for _, tt := range []struct {
			field, to     string
			a, b, junk, n int // new messages in the mailboxes, in the first one's Junk, and forwarded
		}{
			{"Delivered-To: alice@demo.test", "alice@demo.test", -1, 0, 0, 0},
			{"Delivered-To: alice@demo.test", "alice@demo.test " + other, 1, 1, 0, 0},
			{"X-Loop: OUT@demo.test", "out@demo.test", -1, 0, 0, 0},
			{"X-Loop: OUT@demo.test", "out@demo.test " + other, 1, 1, 1, 0},
			{"Delivered-To: out@demo.test", other + " out@demo.test", 1, 1, 1, 0},
			{"X-Loop: out@demo.test", "out@demo.test alice@demo.test", 1, 0, 0, 0},
			{"X-Loop: out@demo.test", "out@demo.test free@demo.test", 1, 0, 1, 1},
			{"X-Loop: both@demo.test", "both@demo.test", 0, 1, 0, 0},
			{"Delivered-To: both@demo.test", "both@demo.test", -1, 0, 0, 0},
			{strings.Repeat("Delivered-To: x@good.com\r\n", 9) + "Delivered-To: y@good.com", "out@demo.test free@demo.test", -1, 0, 0, 0},
		} {
			err := mx(t, s, "ann@good.com", tt.field+"\r\n"+to, strings.Fields(tt.to)...)
			if tt.a < 0 {
				if err == nil || !strings.HasPrefix(err.Error(), `554 "5.4.6`) {
					t.Errorf("%s to %s: %v", tt.field, tt.to, err)
				}
				tt.a = 0
			} else if err != nil {
				t.Errorf("%s to %s: %v", tt.field, tt.to, err)
			}
			a, b, junk, out = a+tt.a, b+tt.b, junk+tt.junk, out+tt.n
			gotOut := count(t, s, sentOnAll, 0)
			if gotA, gotB, gotJunk := count(t, s, heldBy, 0), count(t, s, heldBy, 1), count(t, s, inJunk, 0); gotA != a || gotB != b || gotJunk != junk || gotOut != out {
				t.Fatalf("%s to %s: alice holds %d, in Junk %d, bob %d, %d went on; want %d, %d, %d, %d", tt.field, tt.to, gotA, gotJunk, gotB, gotOut, a, junk, b, out)
			}
			if tt.junk > 0 {
				if text := newest(t, s, 0); !strings.HasPrefix(text, "Return-Path: <ann@good.com>\r\nDelivered-To: out@demo.test\r\n") {
					t.Errorf("the postmaster has\n%.300s", text)
				}
			}
		}
	})
}

// Mail that must not be forwarded is rejected, or filed for a recipient.
func TestHaltedUnwanted(t *testing.T) {
	const text = "From: a@shop.com\r\nTo: x@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n"
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		if _, err := clientOf(t, s).CreateAlias(t.Context(), "out@demo.test", away); err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "a@good.com", text, "bob@demo.test", "out@demo.test"); err != nil {
			t.Error(err)
		}
		if a, b := count(t, s, inJunk, 0), count(t, s, inJunk, 1); a != 1 || b != 1 {
			t.Fatalf("the postmaster has %d, bob %d", a, b)
		}
		if text := newest(t, s, 0); !strings.Contains(text, "\r\nDelivered-To: out@demo.test\r\n") {
			t.Errorf("the postmaster has\n%.300s", text)
		}
		// A recipient who is also the postmaster gets it once.
		if err := mx(t, s, "a@good.com", text, "alice@demo.test", "out@demo.test"); err != nil {
			t.Error(err)
		}
		if a := count(t, s, heldBy, 0); a != 2 {
			t.Errorf("the postmaster has %d", a)
		}
		// The postmaster's mailbox is full: the mail would be lost silently.
		fillUp(t, s, s.Dev.Mailboxes[0].ID)
		if err := mx(t, s, "a@good.com", text, "bob@demo.test", "out@demo.test"); err == nil || !strings.HasPrefix(err.Error(), `550 "5.7.1`) {
			t.Errorf("without a postmaster: %v", err)
		}
		if b, out := count(t, s, heldBy, 1), count(t, s, sentOnAll, 0); b != 1 || out != 0 {
			t.Errorf("bob holds %d, %d went on", b, out)
		}
	})
}

// An account without a mailbox can't file the mail: neither the operator nor the oldest mailbox of
// the service gets mail for others.
func TestHaltedWithoutMailbox(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		rival(t, s)
		for head, want := range map[string]string{"X-Loop: out@rival.test\r\nFrom: ann@good.com": `554 "5.4.6`, "From: a@shop.com": `550 "5.7.1`} {
			err := mx(t, s, "ann@good.com", head+"\r\nSubject: Hi\r\n\r\nHi\r\n", "bob@demo.test", "out@rival.test")
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", head, err)
			}
		}
		if a, b, out := count(t, s, heldBy, 0), count(t, s, heldBy, 1), count(t, s, sentOnAll, 0); a+b+out != 0 {
			t.Errorf("alice holds %d, bob %d, %d went on", a, b, out)
		}
	})
}

// Local mail is treated like mail from outside: the mailboxes of an alias get it.
func TestHaltedFromHere(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, ctx := clientOf(t, s), t.Context()
		const loop = "X-Loop: both@demo.test\r\nFrom: alice@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n"
		if _, err := c.CreateAlias(ctx, "both@demo.test", away, s.Dev.Mailboxes[1].ID.String()); err != nil {
			t.Fatal(err)
		}
		submitted(t, s, 0, loop, "both@demo.test")
		if text := arrived(t, s, 1, 1); !strings.Contains(text, "Delivered-To: both@demo.test\r\n") {
			t.Errorf("bob has\n%s", text)
		}
		if out := count(t, s, sentOnAll, 0); out != 0 {
			t.Errorf("%d went on", out)
		}
	})
}

// A rejection for a forwarding loop, or for the limits of the forwarding account, does not count
// against the address: it is not suppressed.
func TestHaltedIsNoFault(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, ctx := clientOf(t, s), t.Context()
		for address, targets := range map[string][]string{
			"out@demo.test": {away}, "many@demo.test": {away, "1@a.test", "2@a.test", "3@a.test", "4@a.test", "5@a.test"},
		} {
			if _, err := c.CreateAlias(ctx, address, targets...); err != nil {
				t.Fatal(err)
			}
		}
		submitted(t, s, 0, "X-Loop: out@demo.test\r\nFrom: alice@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", "out@demo.test")
		if text := arrived(t, s, 0, 1); !strings.Contains(text, "Final-Recipient: rfc822; out@demo.test\r\nAction: failed\r\nStatus: 5.4.6\r\n") {
			t.Errorf("alice is told\n%s", text)
		}
		demo, err := s.Accounts.ByEmail(ctx, "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Limits.SetOverrides(ctx, demo.ID, quota.AccountLimits{Rates: quota.Rates{RecipientsPerDay: 5}}); err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(demo.ID)})
		defer sub.Close()
		sent, err := c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"many@demo.test"}, Subject: "Hi", Text: "Hi"})
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := c.GetMessage(ctx, sent.ID)
			if err != nil {
				t.Fatal(err)
			}
			if m.Status == "bounced" {
				break
			}
			<-sub.C
		}
		if list, err := c.ListSuppressions(ctx, client.SuppressionFilter{}, client.Paging{}); err != nil || len(list.Data) != 0 {
			t.Errorf("suppressed: %+v, %v", list.Data, err)
		}
	})
}

// A recipient that both an alias and a mailbox forward to gets the message once.
func TestForwardOnce(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		if _, err := clientOf(t, s).CreateAlias(t.Context(), "both@demo.test", away, s.Dev.Mailboxes[1].ID.String()); err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "ann@good.com", question, "both@demo.test", "BOTH@demo.test", "both+x@demo.test", "bob@demo.test"); err != nil {
			t.Fatal(err)
		}
		if b, out := count(t, s, heldBy, 1), count(t, s, sentOnAll, 0); b != 1 || out != 1 {
			t.Errorf("bob holds %d, %d went on", b, out)
		}
	})
}

// newest returns the newest message of a mailbox.
func newest(t *testing.T, s *servertest.Server, box int) string {
	t.Helper()
	path := "/mailboxes/" + s.Dev.Mailboxes[box].ID.String() + "/messages"
	var all struct{ Data []struct{ ID string } }
	s.API("GET", path+"?limit=1", nil).Decode(t, &all)
	if len(all.Data) != 1 {
		t.Fatal("the mailbox is empty")
	}
	return string(s.API("GET", path+"/"+all.Data[0].ID+"/raw", nil).Body)
}
