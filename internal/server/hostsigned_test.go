// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// receiver is a remote host that accepts mail for all addresses except away.
type receiver struct{ took chan received }

type received struct{ helo, from, to, text string }

type receiving struct {
	r    *receiver
	mail received
}

func (r *receiver) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &receiving{r, received{helo: c.Hostname()}}, nil
}
func (s *receiving) Reset()        { s.mail = received{helo: s.mail.helo} }
func (s *receiving) Logout() error { return nil }
func (s *receiving) Mail(from string, _ *smtp.MailOptions) error {
	s.mail.from = from
	return nil
}

func (s *receiving) Rcpt(to string, _ *smtp.RcptOptions) error {
	if to == away {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	}
	s.mail.to = to
	return nil
}

func (s *receiving) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.mail.text = string(text)
	s.r.took <- s.mail
	return err
}

// TestMailOfTheHost checks that a report and a password-reset mail pass SPF and DKIM for the host
// name, with the records that the service requires from its operator.
func TestMailOfTheHost(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		there := &receiver{make(chan received, 10)}
		srv := smtp.NewServer(there)
		srv.Domain = "relay.test"
		s := startRelaying(t, url, srv)
		ctx, host := t.Context(), s.Config.Host
		rival(t, s)

		addr, zone := dnstest.Start(t)
		h, err := s.Domains.LoadHost(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sender := netip.MustParseAddr("9.9.9.1")
		h.Resolver, h.Addrs, h.UsesSmartHost = dnstest.Resolver(t, addr), []netip.Addr{sender}, false
		all, err := h.Check(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Type != "A" {
				zone.Publish(r.Type, r.Name, r.Value, r.Priority)
			}
		}
		verify := &mailauth.Verifier{DNS: dnstest.Resolver(t, addr), Now: time.Now}
		passes := func(m received) {
			t.Helper()
			header, body, _ := strings.Cut(m.text, "\r\n\r\n")
			trial := verify.Begin([]byte(header + "\r\n"))
			_, _ = io.WriteString(trial, body)
			got := trial.Verify(context.WithoutCancel(ctx), mailauth.ClientIdentity{IP: sender, Helo: m.helo, From: m.from})
			if len(got.DKIM) != 1 || got.DKIM[0].Result != mailauth.Pass || got.DKIM[0].Domain != host || got.SPF.Result != mailauth.Pass || got.DMARC.Result != mailauth.Pass {
				t.Errorf("DKIM %+v, SPF %+v, DMARC %+v of\n%s", got.DKIM, got.SPF, got.DMARC, m.text)
			}
		}

		// A failed forward is reported to its remote sender.
		if err := mx(t, s, "ann@good.com", question, "out@rival.test"); err != nil {
			t.Fatal(err)
		}
		report := <-there.took
		if report.from != "" || report.to != "ann@good.com" || report.helo != host || !strings.Contains(report.text, "MAILER-DAEMON@"+host) {
			t.Errorf("the report is %+v", report)
		}
		passes(report)

		acc, err := s.Accounts.ByEmail(ctx, "rival@example.com")
		if err != nil {
			t.Fatal(err)
		}
		eve, err := s.Users.Create(ctx, user.CreateParams{Email: "eve@elsewhere.com", Name: "Eve", Password: "Correct-horse-7"}, acc.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Users.SendResetLink(ctx, eve); err != nil {
			t.Fatal(err)
		}
		password := <-there.took
		if !strings.HasSuffix(password.from, "@bounces."+host) || password.to != eve.Email || !strings.Contains(password.text, "no-reply@"+host) {
			t.Errorf("the mail for a new password is %+v", password)
		}
		passes(password)
	})
}

// TestForeignReportIsNotSigned checks that only mail from the service itself is signed for the host
// name.
func TestForeignReportIsNotSigned(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		if _, err := clientOf(t, s).CreateAlias(t.Context(), "out@demo.test", away); err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "ann@good.com", question, "out@demo.test"); err != nil {
			t.Fatal(err)
		}
		path, _ := wentOut(t, s, away, 1)
		forged := "From: MAILER-DAEMON@" + s.Config.Host + "\r\nMessage-ID: <1@" + s.Config.Host + ">\r\nSubject: Failed\r\n\r\nNo\r\n"
		if err := mx(t, s, "", forged, path); err != nil {
			t.Fatal(err)
		}
		if _, text := wentOut(t, s, "ann@good.com", 1); strings.Contains(text, "DKIM-Signature:") {
			t.Errorf("signed in the name of the host:\n%s", text)
		}
	})
}
