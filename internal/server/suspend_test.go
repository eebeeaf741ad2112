// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Changes that another node has just committed, and whose signals have not arrived yet.
var (
	setAccount = db.SQL(`UPDATE account SET status = $2 WHERE id = $1`)
	setDomain  = db.SQL(`UPDATE domain SET suspended_at = $2 WHERE id = $1`)
	setMailbox = db.SQL(`UPDATE mailbox SET status = $2 WHERE id = $1`)
)

func dialogue(t *testing.T, addr string) *textproto.Conn {
	t.Helper()
	c, err := textproto.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, _, err := c.ReadResponse(220); err != nil {
		t.Fatal(err)
	}
	return c
}

// says sends a line and expects a reply that begins with want.
func says(t *testing.T, c *textproto.Conn, line, want string) {
	t.Helper()
	if err := c.PrintfLine("%s", line); err != nil {
		t.Fatal(err)
	}
	code, text, err := c.ReadResponse(0)
	if got := fmt.Sprintf("%d %s", code, text); err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("%s: %s, %v; want %s", line, got, err, want)
	}
}

// A transaction that is open when its recipient is suspended does not end with 250, despite this
// node's caches. If the message also has other recipients, the sender retries, and RCPT rejects the
// suspended one.
func TestSuspendedWithinTransaction(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		ctx, alice := t.Context(), s.Dev.Mailboxes[0]
		box, err := s.Mailboxes.ByID(ctx, alice.ID)
		if err != nil {
			t.Fatal(err)
		}
		// bob@demo.test belongs to the same account, eve to another.
		rivals := rival(t, s)
		d, err := rivals.ListDomains(ctx, client.Paging{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rivals.CreateMailbox(ctx, client.NewMailbox{DomainID: d.Data[0].ID, LocalPart: "eve"}); err != nil {
			t.Fatal(err)
		}
		if _, err := clientOf(t, s).CreateAlias(ctx, "out@demo.test", away); err != nil {
			t.Fatal(err)
		}
		const body = "From: Ann <ann@good.com>\r\nSubject: Hi\r\n\r\nHi\r\n"
		for _, way := range []struct {
			what     string
			on, off  db.Statement
			mailbox_ bool
		}{
			{"account", setAccount.With(box.Account, "suspended"), setAccount.With(box.Account, "active"), false},
			{"domain", setDomain.With(box.Domain, 1), setDomain.With(box.Domain, 0), false},
			{"mailbox", setMailbox.With(box.ID, "suspended"), setMailbox.With(box.ID, "active"), true},
		} {
			for _, to := range []struct {
				rcpts []string
				want  string
			}{
				{[]string{"alice@demo.test"}, "550 5.2.1"},
				{[]string{"out@demo.test"}, "550 5.2.1"},
				{[]string{"alice@demo.test", "out@demo.test"}, "550 5.2.1"},
				{[]string{"postmaster@demo.test"}, "550 5.2.1"},
				{[]string{"alice@demo.test", "eve@rival.test"}, "450 4.2.1"},
				{[]string{"eve@rival.test", "out@demo.test"}, "450 4.2.1"},
				{[]string{"eve@rival.test"}, "250 2.0.0"},
			} {
				if way.mailbox_ && strings.Contains(strings.Join(to.rcpts, " "), "out@") {
					continue // the alias still accepts mail
				}
				for _, bdat := range []bool{false, true} {
					what := fmt.Sprintf("%s of %v, BDAT %t", way.what, to.rcpts, bdat)
					c := dialogue(t, s.Addr("smtp"))
					says(t, c, "EHLO good.com", "250")
					says(t, c, "MAIL FROM:<ann@good.com>", "250")
					for _, to := range to.rcpts {
						says(t, c, "RCPT TO:<"+to+">", "250")
					}
					if bdat {
						says(t, c, fmt.Sprintf("BDAT %d\r\n%s", len(body), strings.TrimSuffix(body, "\r\n")), "250")
					} else {
						says(t, c, "DATA", "354")
						if err := c.PrintfLine("%s", strings.TrimSuffix(body, "\r\n")); err != nil {
							t.Fatal(err)
						}
					}
					dbtest.Exec(t, s.DB, way.on)
					t.Log(what)
					says(t, c, map[bool]string{false: ".", true: "BDAT 2 LAST\r\n"}[bdat], to.want)
					_ = c.Close()
					dbtest.Exec(t, s.DB, way.off)
					s.Mailboxes.InvalidateAll()
					s.Accounts.Invalidate(box.Account)
					s.Domains.Invalidate(box.Domain)
				}
			}
		}
		if a, out := count(t, s, heldBy, 0), count(t, s, sentOnAll, 0); a != 0 || out != 0 {
			t.Errorf("alice holds %d, and %d went on", a, out)
		}
		if err := mx(t, s, "ann@good.com", question, "alice@demo.test"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// idles signs in over IMAP and idles, with or without a selected folder.
func idles(t *testing.T, s *servertest.Server, password, folder string) *textproto.Conn {
	t.Helper()
	nc, err := tls.Dial("tcp", s.Addr("imaps"), s.TLS())
	if err != nil {
		t.Fatal(err)
	}
	c := textproto.NewConn(nc)
	t.Cleanup(func() { _ = c.Close() })
	for _, line := range []string{"a LOGIN alice@demo.test " + password, "a SELECT " + folder, "a IDLE"} {
		if folder == "" && strings.HasPrefix(line, "a SELECT") {
			continue
		}
		if err := c.PrintfLine("%s", line); err != nil {
			t.Fatal(err)
		}
		for text := ""; !strings.HasPrefix(text, "a OK") && !strings.HasPrefix(text, "+ "); {
			if text, err = c.ReadLine(); err != nil || strings.HasPrefix(text, "a NO") {
				t.Fatal(text, err)
			}
		}
	}
	return c
}

// An idle session ends when the account, the domain or the mailbox is suspended (also by a separate
// command), and when its credential is revoked.
func TestSuspendedWhileIdle(t *testing.T) {
	needtest.Full(t, "IDLE of suspended mailboxes")
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url))
		ctx, alice := t.Context(), s.Dev.Mailboxes[0]
		box, err := s.Mailboxes.ByID(ctx, alice.ID)
		if err != nil {
			t.Fatal(err)
		}
		desk, err := server.OpenAdminTools(ctx, s.Config.Data, s.Config.Database)
		if err != nil {
			t.Fatal(err)
		}
		defer desk.Close() //nolint:errcheck // nothing is lost
		setBox := func(status string) error {
			_, err := s.Mailboxes.Update(ctx, box.Account, box.ID, mailbox.Change{Status: &status})
			return err
		}
		for _, c := range []struct {
			what    string
			on, off func() error
		}{
			{"the account", func() error { return s.Accounts.SetStatus(ctx, box.Account, account.StatusSuspended) }, func() error { return s.Accounts.SetStatus(ctx, box.Account, account.StatusActive) }},
			{"the account, by command", func() error { return desk.Accounts.SetStatus(ctx, box.Account, account.StatusSuspended) }, func() error { return desk.Accounts.SetStatus(ctx, box.Account, account.StatusActive) }},
			{"the domain", func() error { return s.Domains.SetSuspended(ctx, "demo.test", true) }, func() error { return s.Domains.SetSuspended(ctx, "demo.test", false) }},
			{"the domain, by command", func() error { return desk.Domains.SetSuspended(ctx, "demo.test", true) }, func() error { return desk.Domains.SetSuspended(ctx, "demo.test", false) }},
			{"the mailbox", func() error { return setBox(mailbox.StatusSuspended) }, func() error { return setBox(mailbox.StatusActive) }},
			{"the password", func() error {
				_, err := s.Mailboxes.SetPassword(ctx, box.Account, box.ID, &alice.Password)
				return err
			}, func() error { return nil }},
			{"a deletion", func() error { return s.Mailboxes.Delete(ctx, box.Account, box.ID) }, func() error {
				_, err := s.Mailboxes.Restore(ctx, box.Account, box.ID)
				return err
			}},
		} {
			for _, folder := range []string{"INBOX", ""} {
				idle := idles(t, s, alice.Password, folder)
				if err := c.on(); err != nil {
					t.Fatal(c.what, err)
				}
				for {
					text, err := idle.ReadLine()
					if err != nil {
						t.Errorf("%s, in %q: the session ends without BYE: %v", c.what, folder, err)
						break
					}
					if strings.HasPrefix(text, "* BYE") {
						break
					}
				}
				if err := c.off(); err != nil {
					t.Fatal(c.what, err)
				}
				s.Accounts.Invalidate(box.Account)
				s.Domains.Invalidate(box.Domain)
			}
		}
	})
}

// A suspended domain can neither receive nor send by any path. Afterwards everything works as
// before.
func TestSuspendedDomain(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		ctx, c, alice := t.Context(), clientOf(t, s), s.Dev.Mailboxes[0]
		for address, target := range map[string]string{"out@demo.test": away, "in@demo.test": alice.ID.String()} {
			if _, err := c.CreateAlias(ctx, address, target); err != nil {
				t.Fatal(err)
			}
		}
		// An alias of the account's other domain points to a mailbox of the suspended one.
		other, err := c.CreateDomain(ctx, "other.test")
		if err == nil {
			_, err = c.VerifyDomainDNS(ctx, other.ID)
		}
		if err == nil {
			_, err = c.CreateAlias(ctx, "in@other.test", alice.ID.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		_, key, err := s.Accounts.CreateKey(ctx, account.OperatorAccount, account.KeyParams{Name: "op", Scopes: []string{account.ScopeOperator}})
		if err != nil {
			t.Fatal(err)
		}
		operator, err := client.New(s.Dev.BaseURL, key, client.WithAttempts(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(operator.CloseIdleConnections)

		to := func(address string) func() error {
			return func() error { return mx(t, s, "ann@good.com", question, address) }
		}
		get := func(host, path string) func() error {
			return func() error {
				if code, text := policyAt(t, s, host, path); code != http.StatusOK {
					return fmt.Errorf("%d %s", code, text)
				}
				return nil
			}
		}
		login := func(listener func(net.Conn) error) func() error {
			return func() error {
				nc, err := tls.Dial("tcp", s.Addr("imaps"), s.TLS())
				if err != nil {
					return err
				}
				defer nc.Close() //nolint:errcheck // only asked
				return listener(nc)
			}
		}
		submission := func() (*smtp.Client, error) {
			nc, err := net.Dial("tcp", s.Addr("submission"))
			if err != nil {
				return nil, err
			}
			c, err := smtp.NewClient(nc, "localhost")
			if err == nil {
				err = errors.Join(c.StartTLS(s.TLS()), c.Auth(smtp.PlainAuth("", alice.Address, alice.Password, "localhost")))
			}
			return c, err
		}
		session, err := submission()
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close() //nolint:errcheck // it has ended
		send := &client.Send{FromEmail: "alice@demo.test", To: []string{away}, Subject: "Hi", Text: "Hi"}
		names := 0
		readers := []struct {
			what, denied string
			try          func() error
		}{
			{"mail to a mailbox", `550 "5.2.1`, to("alice@demo.test")},
			{"mail to an alias", `550 "5.2.1`, to("in@demo.test")},
			{"mail to an alias that leads elsewhere", `550 "5.2.1`, to("out@demo.test")},
			{"mail to postmaster", `550 "5.2.1`, to("postmaster@demo.test")},
			{"mail to another domain's alias for it", `550 "5.2.1`, to("in@other.test")},
			{"a send", "sender_not_allowed", func() error { _, err := c.Send(ctx, send); return err }},
			{"an IMAP log-in", "a NO", login(func(nc net.Conn) error {
				conn := textproto.NewConn(nc)
				if _, err := conn.ReadLine(); err != nil {
					return err
				}
				if err := conn.PrintfLine("a LOGIN %s %s", alice.Address, alice.Password); err != nil {
					return err
				}
				text, err := conn.ReadLine()
				if err == nil && !strings.HasPrefix(text, "a OK") {
					err = errors.New(text)
				}
				return err
			})},
			{"a log-in for submission", "535", func() error {
				c, err := submission()
				if c != nil {
					_ = c.Close()
				}
				return err
			}},
			{"the mailbox's own page", "mailbox is suspended", func() error {
				jarless := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				resp, err := jarless.PostForm(s.Dev.BaseURL+"/mailbox/sign-in", url.Values{"address": {alice.Address}, "password": {alice.Password}})
				if err != nil {
					return err
				}
				defer resp.Body.Close() //nolint:errcheck // only read
				text, err := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusSeeOther {
					err = fmt.Errorf("%d %s", resp.StatusCode, text)
				}
				return err
			}},
			{"autoconfig", "404", get("localhost", "/mail/config-v1.1.xml?emailaddress=alice@demo.test")},
			{"the MTA-STS policy", "", get("mta-sts.demo.test", "/.well-known/mta-sts.txt")},
			{"a new alias", "domain_suspended", func() error {
				names++
				_, err := c.CreateAlias(ctx, fmt.Sprintf("new%d@demo.test", names), alice.ID.String())
				return err
			}},
			{"a new mailbox", "domain_suspended", func() error {
				names++
				_, err := c.CreateMailbox(ctx, client.NewMailbox{DomainID: s.Dev.Domain.ID.String(), LocalPart: fmt.Sprintf("new%d", names)})
				return err
			}},
			{"the signer of what waits", "domain_suspended", func() error {
				sent, err := c.Send(ctx, &client.Send{FromEmail: "x@other.test", To: []string{away}, Subject: "Hi", Text: "Hi"})
				if err != nil {
					return err
				}
				id, err := db.ParseID(sent.ID)
				if err != nil {
					return err
				}
				dbtest.Exec(t, s.DB, db.SQL(`UPDATE outbound_message SET domain = $2 WHERE id = $1`).With(id, s.Dev.Domain.ID))
				_, err = s.Outbox.Prepare(ctx, id)
				var f *fault.Error
				if errors.As(err, &f) {
					err = errors.New(f.Code)
				}
				return err
			}},
		}
		try := func(suspended bool) {
			t.Helper()
			for _, r := range readers {
				err := r.try()
				if suspended && (err == nil || !strings.Contains(err.Error(), r.denied)) || !suspended && err != nil {
					t.Errorf("suspended %t: %s: %v, want %q", suspended, r.what, err, r.denied)
				}
			}
		}
		try(false)
		if d, err := operator.SuspendDomain(ctx, "demo.test", true); err != nil || !d.Suspended || d.AccountID == nil {
			t.Fatalf("%+v, %v", d, err)
		}
		try(true)
		if err := session.Mail(alice.Address); err == nil || !strings.HasPrefix(err.Error(), "421") {
			t.Errorf("an open session goes on: %v", err)
		}
		if d, err := c.GetDomain(ctx, s.Dev.Domain.ID.String()); err != nil || d.Status != "suspended" {
			t.Errorf("the account sees %+v, %v", d, err)
		}
		if d, err := operator.SuspendDomain(ctx, "demo.test", false); err != nil || d.Suspended {
			t.Fatalf("%+v, %v", d, err)
		}
		try(false)
		if _, err := operator.SuspendDomain(ctx, "nowhere.test", true); err == nil {
			t.Error("a domain that is not here is suspended")
		}
		if _, err := c.SuspendDomain(ctx, "demo.test", true); err == nil {
			t.Error("a customer suspends a domain")
		}
		demo, err := s.Accounts.ByEmail(ctx, "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		entries, _, err := s.Audit.List(ctx, demo.ID, db.Page{Limit: 10})
		told := ""
		for _, e := range entries {
			told += e.Actor.Kind + ": " + e.Description + "\n"
		}
		if err != nil || !strings.Contains(told, "operator: Suspended the domain demo.test.\n") || !strings.Contains(told, "Ended the suspension of the domain demo.test.") {
			t.Errorf("the activity tells %q, %v", told, err)
		}
	})
}
