// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

var forwardedBy = db.SQL(`SELECT m.sender, d.recipient, d.state FROM outbound_message m JOIN delivery d ON d.message = m.id
	WHERE m.account = $1 AND m.forwarded <> 0 ORDER BY m.id`)

// forwarded waits until an account has forwarded n messages, and returns the envelope sender and
// the recipient of the last one.
func forwarded(t *testing.T, s *servertest.Server, account db.ID, n int) (sender, to string) {
	t.Helper()
	servertest.Eventually(t, func() string {
		all, delivered := 0, 0
		if err := s.DB.Each(t.Context(), forwardedBy.With(account), func(r db.Row) error {
			var state string
			err := r.Scan(&sender, &to, &state)
			all++
			if state == "delivered" {
				delivered++
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if all != n || delivered != n {
			return fmt.Sprintf("%d messages were forwarded and %d delivered, want %d", all, delivered, n)
		}
		return ""
	})
	return sender, to
}

func answers(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil && want != "" || err != nil && (want == "" || !strings.HasPrefix(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// Mail to the role addresses of a domain without mailboxes goes to its account's owner, as the
// service's own mail, or is rejected. The oldest mailbox of the service, which belongs to another
// account, gets none of it.
func TestRoleMailStaysWithItsAccount(t *testing.T) {
	const owner, dmarc = "eve@away.example.net", "From: a@shop.com\r\nSubject: Hi\r\n\r\nHi\r\n"
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		ctx := t.Context()
		rival(t, s)
		acc, err := s.Accounts.ByEmail(ctx, "rival@example.com")
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"postmaster@rival.test", "Abuse+x@rival.test"} {
			answers(t, "without an owner, "+to, mx(t, s, "ann@good.com", question, to), `550 "5.1.1`)
		}
		if _, err := s.Users.Create(ctx, user.CreateParams{Email: owner, Name: "Eve", Password: "Correct-horse-7"}, acc.ID); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range []struct{ what, from, text, to, want string }{
			{"", "ann@good.com", question, "postmaster@rival.test", ""},
			{"to abuse", "ann@good.com", question, "ABUSE@rival.test", ""},
			{"of a sender in doubt", "ann@none.com", "From: ann@none.com\r\nSubject: Hi\r\n\r\nHi\r\n", "postmaster@rival.test", ""},
			{"of the null sender", "", "From: mailer-daemon@none.com\r\nSubject: Hi\r\n\r\nHi\r\n", "postmaster@rival.test", ""},
			{"that fails DMARC", "ann@good.com", dmarc, "postmaster@rival.test", `550 "5.7.1`},
			{"that was here before", "ann@good.com", "X-Loop: postmaster@rival.test\r\n" + question, "postmaster@rival.test", `554 "5.4.6`},
		} {
			answers(t, "mail "+c.what, mx(t, s, c.from, c.text, c.to), c.want)
			if c.want == "" {
				n++
			}
			// A report about it would reveal the owner's address.
			if sender, to := forwarded(t, s, acc.ID, n); c.want == "" && (to != owner || sender != "") {
				t.Errorf("mail %s goes to %s from %q", c.what, to, sender)
			}
		}
		submitted(t, s, 1, "From: bob@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", "postmaster@rival.test")
		if sender, to := forwarded(t, s, acc.ID, n+1); sender != "" || to != owner {
			t.Errorf("mail from here goes to %s from %q", to, sender)
		}
		// Mail to the role addresses does not count towards the account's sending limit, and
		// arrives even when the limit is used up.
		if err := s.Limits.SetOverrides(ctx, acc.ID, quota.AccountLimits{Rates: quota.Rates{SendsPerHour: 1, SendsPerDay: 1, RecipientsPerDay: 1}}); err != nil {
			t.Fatal(err)
		}
		own := quota.Consumer{Account: acc.ID}
		answers(t, "before the account sends", mx(t, s, "ann@good.com", question, "postmaster@rival.test"), "")
		if _, err := s.Limits.Reserve(ctx, own, 1, 1); err != nil {
			t.Errorf("the account may not send: %v", err)
		}
		answers(t, "when the account may send no more", mx(t, s, "ann@good.com", question, "postmaster@rival.test"), "")
		forwarded(t, s, acc.ID, n+3)
		role := quota.RoleMailConsumer(acc.ID)
		for s.Limits.CheckSend(ctx, role, 1, 1) == nil {
			if _, err := s.Limits.Reserve(ctx, role, 1, 1); err != nil {
				t.Fatal(err)
			}
		}
		answers(t, "too much", mx(t, s, "ann@good.com", question, "postmaster@rival.test"), `450 "4.7.1 Too much mail has come to this address`)
		if err := s.Accounts.SetStatus(ctx, acc.ID, account.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		answers(t, "while the account is suspended", mx(t, s, "ann@good.com", question, "postmaster@rival.test"), `550 "5.2.1`)
		answers(t, "of the null sender then", mx(t, s, "", question, "postmaster@rival.test"), `550 "5.2.1`)
		if a, b := count(t, s, heldBy, 0), count(t, s, heldBy, 1); a+b != 0 {
			t.Errorf("alice, the oldest, holds %d, and bob %d", a, b)
		}
	})
}

// Mail to the host's own role addresses only goes to the operator's address. If that is at another
// host, no report reveals it.
func TestHostRoleMail(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		host, n := s.Config.Host, 0
		to := []string{"postmaster", "POSTMASTER@" + host, "abuse@" + host, "postmaster@bounces." + host}
		s.Mailboxes.Postmaster = "root@away.example.net"
		for _, to := range to {
			for from, text := range map[string]string{"ann@good.com": question, "": "From: mailer-daemon@none.com\r\nSubject: Failed\r\n\r\nNo\r\n"} {
				answers(t, to, mx(t, s, from, text, to), "")
				n++
				if sender, at := forwarded(t, s, account.OperatorAccount, n); at != "root@away.example.net" || sender != "" {
					t.Errorf("%s goes to %s from %q", to, at, sender)
				}
			}
		}
		answers(t, "what fails DMARC", mx(t, s, "ann@good.com", "From: a@shop.com\r\n\r\nHi\r\n", to[1]), `550 "5.7.1`)
		for _, nowhere := range []string{"nobody@demo.test", "postmaster@" + host} {
			s.Mailboxes.Postmaster = nowhere
			s.Mailboxes.InvalidateAll()
			for _, to := range to {
				answers(t, nowhere+" for "+to, mx(t, s, "ann@good.com", question, to), `450 "4.2.1`)
			}
		}
		if a, b := count(t, s, heldBy, 0), count(t, s, heldBy, 1); a+b != 0 {
			t.Errorf("alice, the oldest, holds %d, and bob %d", a, b)
		}
		s.Mailboxes.Postmaster = "bob@demo.test"
		for i, to := range to {
			answers(t, to, mx(t, s, "ann@good.com", question, to), "")
			arrived(t, s, 1, uint32(i+1))
		}
	})
}
