// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	filledUp = db.SQL(`UPDATE mailbox_usage SET bytes = 1000000000000, nearly_full = 2 WHERE mailbox = $1`)
	heldBy   = db.SQL(`SELECT messages FROM mailbox_usage WHERE mailbox = $1`)
	putOff   = db.SQL(`SELECT COUNT(*) FROM delivery WHERE state = 'deferred' AND code = 452 AND message <> $1`)
)

const away = "alice@away.example.net"

// fillUp fills a mailbox's quota, as another node could.
func fillUp(t *testing.T, s *servertest.Server, mailbox db.ID) {
	t.Helper()
	dbtest.Exec(t, s.DB, filledUp.With(mailbox))
	s.Mailboxes.Invalidate(mailbox)
}

// forwards sets a mailbox's forwarding, and returns the mailbox from the API.
func forwards(t *testing.T, c *client.Client, s *servertest.Server, box int, keep bool, to ...string) *client.Mailbox {
	t.Helper()
	if to == nil {
		to = []string{}
	}
	got, err := c.UpdateMailbox(t.Context(), s.Dev.Mailboxes[box].ID.String(), client.MailboxChange{ForwardTo: &to, KeepCopy: &keep})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Mail of a mailbox is forwarded as its owner chose, with or without a copy.
func TestMailboxForwards(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c, ctx, alice := clientOf(t, s), t.Context(), s.Dev.Mailboxes[0].ID.String()
		if got, err := c.GetMailbox(ctx, alice); err != nil || !got.KeepCopy || len(got.ForwardTo) != 0 {
			t.Errorf("at first %+v, %v", got, err)
		}
		got := forwards(t, c, s, 0, true, away, "ALICE@away.example.net", "bob@demo.test")
		if !slices.Equal(got.ForwardTo, []string{away, "bob@demo.test"}) || !got.KeepCopy {
			t.Errorf("changed to %+v", got)
		}
		if err := mx(t, s, "ann@good.com", question, "alice+x@demo.test"); err != nil {
			t.Fatal(err)
		}
		kept, inside := arrived(t, s, 0, 1), arrived(t, s, 1, 1)
		from, outside := wentOut(t, s, away, 1)
		for where, text := range map[string]string{"kept": kept, "inside": inside, "outside": outside} {
			if !strings.HasSuffix(text, question) {
				t.Errorf("%s:\n%s", where, text)
			}
		}
		if !strings.HasPrefix(from, "SRS0=") || !strings.HasSuffix(from, "=good.com=ann@demo.test") {
			t.Errorf("the return path is %s", from)
		}
		// Without a copy.
		no, silent := false, client.MailboxChange{}
		silent.KeepCopy = &no
		if got, err := c.UpdateMailbox(ctx, alice, silent); err != nil || got.KeepCopy || len(got.ForwardTo) != 2 {
			t.Errorf("changed to %+v, %v", got, err)
		}
		if err := mx(t, s, "ann@good.com", question, "alice@demo.test"); err != nil {
			t.Fatal(err)
		}
		arrived(t, s, 1, 2)
		wentOut(t, s, away, 2)
		if n := count(t, s, heldBy, 0); n != 1 {
			t.Errorf("alice holds %d messages", n)
		}
		// A full mailbox that only forwards accepts mail.
		fillUp(t, s, s.Dev.Mailboxes[0].ID)
		if err := mx(t, s, "ann@good.com", question, "alice@demo.test"); err != nil {
			t.Fatal(err)
		}
		arrived(t, s, 1, 3)
		// Local mail is forwarded too.
		submitted(t, s, 1, "From: bob@demo.test\r\nTo: alice@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", "alice@demo.test")
		arrived(t, s, 1, 4)
		if from, _ := wentOut(t, s, away, 4); from != "bob@demo.test" {
			t.Errorf("the return path is %s", from)
		}
		if n := count(t, s, forwardOf, 0); n != 4 {
			t.Errorf("%d messages went on", n)
		}
	})
}

// Mail that must not, or can't, be forwarded is not lost.
func TestMailboxForwardsNothingBad(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		forwards(t, c, s, 0, false, away)
		forwards(t, c, s, 1, true, away)
		const text = "From: p@away.example.net\r\nTo: x@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n"
		for _, bad := range []map[string]string{{"spf": "pass", "spam": "spam"}, {"spf": "pass", "dmarc": "fail"}} {
			for _, to := range []string{"alice@demo.test", "bob@demo.test"} {
				if code := simulated(t, s, "p@away.example.net", to, text, bad); code != 250 {
					t.Errorf("%v to %s: %d", bad, to, code)
				}
			}
		}
		if a, b := count(t, s, heldBy, 0), count(t, s, heldBy, 1); a != 2 || b != 2 {
			t.Errorf("alice holds %d messages, bob %d", a, b)
		}
		// A looping message is filed.
		for _, again := range []string{"X-Loop: Alice@demo.test\r\n", "Delivered-To: alice@demo.test\r\n", strings.Repeat("Delivered-To: x@example.org\r\n", 10)} {
			if code := simulated(t, s, "p@away.example.net", "alice@demo.test", again+text, map[string]string{"spf": "pass"}); code != 250 {
				t.Errorf("round in circles: %d", code)
			}
		}
		if a, out := count(t, s, heldBy, 0), count(t, s, forwardOf, 0); a != 5 || out != 0 {
			t.Errorf("alice holds %d messages, %d went on", a, out)
		}
		// The mailbox is full, so mail that is not forwarded can't be filed.
		fillUp(t, s, s.Dev.Mailboxes[0].ID)
		if code := simulated(t, s, "p@away.example.net", "alice@demo.test", text, map[string]string{"spam": "spam"}); code != 452 {
			t.Errorf("spam for a full mailbox: %d", code)
		}
		// The limit prevents forwarding now: without a copy, the sender must retry.
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Limits.SetOverrides(t.Context(), acc.ID, quota.AccountLimits{Rates: quota.Rates{SendsPerHour: 1}}); err != nil {
			t.Fatal(err)
		}
		pass := map[string]string{"spf": "pass"}
		if code := simulated(t, s, "p@away.example.net", "alice@demo.test", text, pass); code != 250 {
			t.Errorf("within the limit: %d", code)
		}
		if code := simulated(t, s, "p@away.example.net", "alice@demo.test", text, pass); code != 450 {
			t.Errorf("over the limit: %d", code)
		}
		if code := simulated(t, s, "p@away.example.net", "bob@demo.test", text, pass); code != 250 {
			t.Errorf("over the limit, with a copy: %d", code)
		}
		if a, b := count(t, s, heldBy, 0), count(t, s, heldBy, 1); a != 5 || b != 3 {
			t.Errorf("alice holds %d messages, bob %d", a, b)
		}
	})
}

// Mail that must not be forwarded is rejected for a full mailbox only if no other recipient gets
// it: recipients that RCPT accepted get the message.
func TestMailboxForwardsWithoutQuota(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		if _, err := c.CreateAlias(t.Context(), "both@demo.test", s.Dev.Mailboxes[0].ID.String(), s.Dev.Mailboxes[1].ID.String()); err != nil {
			t.Fatal(err)
		}
		forwards(t, c, s, 1, false, away)
		fillUp(t, s, s.Dev.Mailboxes[1].ID)
		const circle = "Delivered-To: bob@demo.test\r\nSubject: Hi\r\nFrom: "
		if err := mx(t, s, "ann@good.com", circle+"ann@good.com\r\n\r\nHi\r\n", "bob@demo.test"); err == nil || !strings.HasPrefix(err.Error(), `452 "4.2.2`) {
			t.Errorf("to him alone: %v", err)
		}
		submitted(t, s, 0, circle+"alice@demo.test\r\n\r\nHi\r\n", "bob@demo.test")
		servertest.Eventually(t, func() string {
			if n := count(t, s, putOff, 0); n != 1 {
				return fmt.Sprintf("%d are put off", n)
			}
			return ""
		})
		for _, to := range []string{"bob@demo.test alice@demo.test", "both@demo.test bob@demo.test", "both@demo.test"} {
			if err := mx(t, s, "ann@good.com", circle+"ann@good.com\r\n\r\nHi\r\n", strings.Fields(to)...); err != nil {
				t.Errorf("to %s: %v", to, err)
			}
		}
		submitted(t, s, 0, circle+"alice@demo.test\r\n\r\nHi\r\n", "both@demo.test")
		arrived(t, s, 0, 4)
		if a, b, out := count(t, s, heldBy, 0), count(t, s, heldBy, 1), count(t, s, forwardOf, 1); a != 4 || b != 4 || out != 0 {
			t.Errorf("alice holds %d, bob %d, %d went on", a, b, out)
		}
	})
}

// Two mailboxes that forward to each other both get each message, and the loop ends.
func TestMailboxesForwardInCircles(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		forwards(t, c, s, 0, false, "bob@demo.test")
		forwards(t, c, s, 1, false, "alice@demo.test")
		if code := simulated(t, s, "p@away.example.net", "alice@demo.test", "From: p@away.example.net\r\nTo: alice@demo.test\r\n\r\nHi\r\n", map[string]string{"spf": "pass"}); code != 250 {
			t.Fatal(code)
		}
		if text := arrived(t, s, 0, 1); strings.Count(text, "X-Loop: ") != 2 {
			t.Errorf("came to rest as\n%s", text)
		}
		if a, b := count(t, s, forwardOf, 0), count(t, s, forwardOf, 1); a != 1 || b != 1 || count(t, s, heldBy, 1) != 0 {
			t.Errorf("alice sent it on %d times, bob %d", a, b)
		}
	})
}

func TestMailboxForwardFields(t *testing.T) {
	s := servertest.Start(t)
	path := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String()
	type m = map[string]any
	many := slices.Repeat([]string{away}, 11)
	for want, body := range map[string]m{
		"forward_to too_many;": {"forward_to": many},
		"quota_mb out_of_range;forward_to[0] invalid_address;forward_to[1] own_address;forward_to[3] not_found;": {
			"quota_mb": 1 << 30, "forward_to": []string{"x", "ALICE+x@demo.test", away, "nobody@demo.test"}},
	} {
		a := s.API("PATCH", path, body)
		var p struct {
			Errors []struct{ Field, Code string }
		}
		a.Decode(t, &p)
		got := ""
		for _, e := range p.Errors {
			got += e.Field + " " + e.Code + ";"
		}
		if a.Status != 422 || got != want {
			t.Errorf("%d %s, want %s", a.Status, got, want)
		}
	}
}
