// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"maps"
	"net/smtp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

// lateComplaint is a feedback report (RFC 5965) that shows a return path and
// names a recipient.
const lateComplaint = "From: loop@isp.example\r\nSubject: FW: Hello\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=x\r\n\r\n" +
	"--x\r\n\r\nA report.\r\n--x\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nVersion: 1\r\n" +
	"Original-Mail-From: <%s>\r\n%s\r\n--x\r\nContent-Type: message/rfc822\r\n\r\nTo: %s\r\nSubject: Hello\r\n\r\nHello.\r\n--x--\r\n"

// A complaint that arrives at the MX after the message was pruned still suppresses the complaining
// recipient and is reported once; any other address is ignored.
func TestComplaintAfterPrune(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := send(t, s, "ann@example.org", "bob@example.org")
		makePast(t, s, m)
		own := func(n int) string { return s.Inbound.Key.ReturnPath(int64(m.ID), n) + "@demo.test" }
		loop := "fbl@" + s.Inbound.Host
		for _, c := range []struct{ to, shown, fields, original string }{
			{loop, own(0), "", "carol@example.org"},
			{loop, own(0), "Original-Rcpt-To: <bob@example.org>\r\n", "bob@example.org"},
			{loop, "alice@demo.test", "Original-Rcpt-To: <ann@example.org>\r\n", "ann@example.org"},
			{loop, own(0), "Original-Rcpt-To: <ann@example.org>\r\n", "undisclosed@isp.example"},
			{loop, own(0), "", "Ann <ann@example.org>"}, // again
			{own(1), "", "", "carol@example.org, bob@example.org"},
			{own(1), "", "", "bob@example.org"}, // again
		} {
			deliver(t, s, c.to, fmt.Sprintf(lateComplaint, c.shown, c.fields, c.original))
		}
		account := demo(t, s).Account
		found, err := s.Suppressions.Blocked(t.Context(), account, []address.Address{
			{Local: "ann", Domain: "example.org"}, {Local: "bob", Domain: "example.org"}, {Local: "carol", Domain: "example.org"},
		}, false)
		if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, []string{"ann@example.org", "bob@example.org"}) {
			t.Errorf("suppressed are %v, %v", got, err)
		}
		servertest.Eventually(t, func() string {
			all, err := s.Events.List(t.Context(), account, event.Filter{Message: m.ID, Kinds: []string{event.Complaint}, Before: 1 << 62, Limit: 10})
			if err != nil {
				return err.Error()
			}
			var of []string
			for _, e := range all.Events {
				for _, local := range []string{"ann", "bob", "carol"} {
					if strings.Contains(string(e.Data), `"`+local+`@example.org"`) && strings.Contains(string(e.Data), m.MessageID) {
						of = append(of, local)
					}
				}
			}
			if slices.Sort(of); slices.Equal(of, []string{"ann", "bob"}) {
				return ""
			}
			return fmt.Sprint("complaints are told of ", of)
		})
	})
}

// A complaint about service mail, or a bounce of it, suppresses nobody: the next link is still
// sent, also after the message was pruned.
func TestComplaintAboutService(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		serve := func(to string, want queue.State) (m outbound.AcceptedMessage) {
			t.Helper()
			if err := s.Outbox.SendServiceMail(t.Context(), to, "Hello", "Hello"); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, func() string {
				found, err := s.Outbox.Index.Find(t.Context(), account.OperatorAccount, index.Filter{Recipients: []string{to}}, db.Page{})
				if err != nil || len(found.Messages) != 1 || found.Messages[0].Status != want {
					return fmt.Sprintf("%+v %v", found, err)
				}
				m.ID, m.MessageID = found.Messages[0].ID, found.Messages[0].MessageID
				return ""
			})
			return m
		}
		for local, gone := range map[string]bool{"ann": false, "bob": true} {
			to := local + "@example.org"
			m := serve(to, queue.Delivered)
			if gone {
				makePast(t, s, m)
			}
			deliver(t, s, "fbl@"+s.Inbound.Host, fmt.Sprintf(lateComplaint, s.Inbound.Key.ReturnPath(int64(m.ID), 0)+"@bounces."+s.Inbound.Host, "", to))
			if got, err := s.Outbox.Get(t.Context(), account.OperatorAccount, m.ID); !gone && (err != nil || got.Status != queue.Complained) {
				t.Errorf("it is %s, %v", got.Status, err)
			}
			blocked, err := s.Suppressions.Blocked(t.Context(), account.OperatorAccount, []address.Address{{Local: local, Domain: "example.org"}}, false)
			if err != nil || len(blocked) > 0 {
				t.Errorf("gone %v: suppressed are %v, %v", gone, blocked, err)
			}
		}
		// An address that doesn't exist isn't suppressed either.
		serve("bounced@simulator.test", queue.Bounced)
		if list, _, err := s.Suppressions.List(t.Context(), account.OperatorAccount, suppression.Filter{}, db.Page{}); err != nil || len(list) != 0 {
			t.Errorf("suppressed are %v, %v", list, err)
		}
	})
}

// deliver delivers a message to the MX.
func deliver(t *testing.T, s *servertest.Server, to, text string) {
	t.Helper()
	c, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Mail("loop@isp.example"); err != nil {
		t.Fatal(err)
	}
	if err := c.Rcpt(to); err != nil {
		t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
