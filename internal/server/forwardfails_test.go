// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// nobodyThere is a host that rejects every recipient.
type nobodyThere struct{ hop }

func (nobodyThere) Rcpt(string, *smtp.RcptOptions) error {
	return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
}

// A local sender of a forwarded message gets a report when it did not arrive, even if another
// account forwarded it, or an application sent it.
func TestForwardFailsForOurOwn(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &nobodyThere{}, nil }))
		srv.Domain = "relay.test"
		s := startRelaying(t, url, srv)
		ctx := t.Context()
		rival(t, s)
		submitted(t, s, 0, "From: alice@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", "out@rival.test")
		if text := arrived(t, s, 0, 1); !strings.Contains(text, "Final-Recipient: rfc822; "+away+"\r\nAction: failed\r\nStatus: 5.1.1\r\n") {
			t.Errorf("alice is told\n%s", text)
		}
		// If the sender was not authenticated, the report goes to the account's postmaster. This
		// account has neither mailbox nor owner, so nobody gets it.
		if err := mx(t, s, "ann@none.com", "From: ann@none.com\r\nSubject: Hi\r\n\r\nFor the alias alone\r\n", "out@rival.test"); err != nil {
			t.Fatal(err)
		}
		demo, err := s.Accounts.ByEmail(ctx, "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(demo.ID)})
		defer sub.Close()
		c := clientOf(t, s)
		forwards(t, c, s, 1, true, away)
		for _, to := range []string{"out@rival.test", "bob@demo.test"} {
			sent, err := c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{to}, Subject: "Hi", Text: "Hi"})
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
		}
		// Bob got it all the same, and must get the next one too.
		if list, err := c.ListSuppressions(ctx, client.SuppressionFilter{}, client.Paging{}); err != nil || len(list.Data) != 0 {
			t.Errorf("suppressed: %+v, %v", list, err)
		}
		if n := count(t, s, heldBy, 1); n != 1 {
			t.Errorf("bob holds %d", n)
		}
	})
}

// The report about a message that requires TLS (RFC 8689 §5) only includes its header, and requires
// TLS itself when it is forwarded.
func TestReportRequiresTLS(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &nobodyThere{}, nil }))
		srv.Domain = "relay.test"
		s := startRelaying(t, url, srv)
		rival(t, s)
		const msg = "From: alice@demo.test\r\nSubject: Hi\r\n\r\nIn confidence\r\n"
		for n, to := range []string{away, "out@rival.test"} {
			requiring(t, s, msg, to)
			text := arrived(t, s, 0, uint32(n+1))
			if !strings.Contains(text, "Final-Recipient: rfc822; "+away+"\r\nAction: failed\r\nStatus: 5.7.10\r\n") || strings.Contains(text, "In confidence") {
				t.Errorf("%s: alice is told\n%s", to, text)
			}
		}
		if n := count(t, s, demandsTLS, 0); n != 2 { // the forwarded message, and the report
			t.Errorf("%d of 2 went on with the demand", n)
		}
	})
}

// A host accepts a forward of an application's mail, and later reports that it can't be delivered.
// That does not count against the local mailbox that has the message, even if no record of its
// filing is left.
func TestForwardIsReturned(t *testing.T) {
	const report = "From: mailer-daemon@good.com\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=x\r\n\r\n" +
		"--x\r\n\r\nIt was not delivered.\r\n--x\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; good.com\r\n\r\n" +
		"Final-Recipient: rfc822; " + away + "\r\nAction: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 no such user\r\n\r\n--x--\r\n"
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c, ctx := clientOf(t, s), t.Context()
		forwards(t, c, s, 1, true, away)
		sent, err := c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Subject: "Hi", Text: "Hi"})
		if err != nil {
			t.Fatal(err)
		}
		arrived(t, s, 1, 1)
		path, _ := wentOut(t, s, away, 1)
		servertest.Eventually(t, func() string { // until its outcome is written
			n, err := s.Inbound.PruneFilings(ctx, time.Now().Add(time.Hour), 100)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return "nothing is forgotten"
			}
			return ""
		})
		if err := mx(t, s, "", report, path); err != nil {
			t.Fatal(err)
		}
		if m, err := c.GetMessage(ctx, sent.ID); err != nil || m.Status != "bounced" {
			t.Errorf("the message is %+v, %v", m, err)
		}
		if list, err := c.ListSuppressions(ctx, client.SuppressionFilter{}, client.Paging{}); err != nil || len(list.Data) != 0 {
			t.Errorf("suppressed: %+v, %v", list, err)
		}
	})
}

// If an envelope names the return path several times, the report is sent there once. It does not
// count towards the sending limit of the forwarding account.
func TestReportGoesBackOnce(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		ctx := t.Context()
		rival(t, s)
		acc, err := s.Accounts.ByEmail(ctx, "rival@example.com")
		if err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "ann@good.com", question, "out@rival.test"); err != nil {
			t.Fatal(err)
		}
		path, _ := forwarded(t, s, acc.ID, 1)
		used := func() int64 {
			t.Helper()
			all, err := s.Limits.Usage(ctx, quota.Consumer{Account: acc.ID})
			if err != nil {
				t.Fatal(err)
			}
			return all[1].Used
		}
		before := used()
		const report = "From: mailer-daemon@none.com\r\nSubject: Failed\r\n\r\nNo\r\n"
		if err := mx(t, s, "", report, slices.Repeat([]string{path, strings.ToUpper(path[:5]) + path[5:]}, 40)...); err != nil {
			t.Fatal(err)
		}
		if _, to := forwarded(t, s, acc.ID, 2); to != "ann@good.com" {
			t.Errorf("the report went to %s", to)
		}
		if n := used(); before != 1 || n != before {
			t.Errorf("%d of its sends are used, before %d", n, before)
		}
		back := quota.ReturnedMailConsumer(acc.ID)
		if all, err := s.Limits.Usage(ctx, back); err != nil || all[0].Used != 1 {
			t.Errorf("reports that went back: %+v, %v", all, err)
		}
		if _, err := s.Limits.Reserve(ctx, back, 1999, 1); err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "", report, path); err == nil || !strings.HasPrefix(err.Error(), `450 "4.7.1`) {
			t.Errorf("beyond their limit: %v", err)
		}
	})
}

// No report about mail to a role address goes outside, as it would reveal the account's owner.
func TestRoleMailTellsNoOwner(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &nobodyThere{}, nil }))
		srv.Domain = "relay.test"
		s := startRelaying(t, url, srv)
		ctx := t.Context()
		s.Mailboxes.Postmaster = "root@operators-home.example.net"
		rival(t, s)
		acc, err := s.Accounts.ByEmail(ctx, "rival@example.com")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users.Create(ctx, user.CreateParams{Email: "eve@away.example.net", Name: "Eve", Password: "Correct-horse-7"}, acc.ID); err != nil {
			t.Fatal(err)
		}
		for to, whose := range map[string]db.ID{"postmaster@rival.test": acc.ID, "abuse@" + s.Config.Host: account.OperatorAccount} {
			if err := mx(t, s, "ann@good.com", question, to); err != nil {
				t.Fatal(err)
			}
			submitted(t, s, 1, "From: bob@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", to)
			servertest.Eventually(t, func() string {
				var bounced, others int
				err := s.DB.Each(ctx, forwardedBy.With(whose), func(r db.Row) error {
					var sender, recipient, state string
					err := r.Scan(&sender, &recipient, &state)
					switch {
					case sender != "" || !strings.HasSuffix(recipient, ".example.net"):
						others++
					case state == "bounced":
						bounced++
					}
					return err
				})
				if err != nil || others > 0 {
					t.Fatalf("%s: %d go elsewhere, %v", to, others, err)
				}
				if bounced != 2 {
					return fmt.Sprintf("%s: %d have bounced", to, bounced)
				}
				return ""
			})
		}
		if n := count(t, s, heldBy, 1); n != 0 {
			t.Errorf("bob was told %d times", n)
		}
	})
}

// rival creates another account, without a mailbox; out@rival.test forwards to an outside address.
func rival(t *testing.T, s *servertest.Server) (c *client.Client) {
	t.Helper()
	acc, err := s.Accounts.Create(t.Context(), "rival@example.com", "Rival")
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := s.Accounts.CreateKey(t.Context(), acc.ID, account.KeyParams{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	if c, err = client.New(s.Dev.BaseURL, token, client.WithAttempts(1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	d, err := c.CreateDomain(t.Context(), "rival.test")
	if err == nil {
		d, err = c.VerifyDomainDNS(t.Context(), d.ID)
	}
	if err == nil {
		_, err = c.CreateAlias(t.Context(), "out@rival.test", away)
	}
	if err != nil {
		t.Fatal(d, err)
	}
	return c
}
