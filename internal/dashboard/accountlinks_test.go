// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// Only the addressee of a sign-in link can read it: nobody else in the account whose domain sends
// it.
func TestLinksAreNotRead(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "owner@outside.test", Name: "Owner", Password: colleague}, demo.ID); err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.CreateInviteLink(t.Context(), demo.ID, "reader@outside.test", user.RoleReader, false)
	if err != nil {
		t.Fatal(err)
	}
	reader := newVisitor(t, s)
	if status, to, text := reader.ask("POST", "/join/"+token, url.Values{"name": {"N"}, "password": {colleague}}); status != 303 || to != "/" {
		t.Fatalf("%d %s\n%s", status, to, text)
	}
	if status, _, text := reader.ask("POST", "/forgotten", url.Values{"email": {"owner@outside.test"}}); status != 200 {
		t.Fatalf("%d\n%s", status, text)
	}
	link(t, mailed(t, s, "owner@outside.test", 1))
	if all := callAPI(t, s, "GET", "/outbound/messages", nil)["data"].([]any); len(all) != 0 {
		t.Errorf("the account lists %v", all)
	}
	for path, want := range map[string]int{"/messages": 200, "/activity": 403, "/sandbox": 200} {
		if status, _, text := reader.ask("GET", path, nil); strings.Contains(text, "owner@outside.test") || status != want {
			t.Errorf("%s shows a reader a link for the owner's password: %d\n%s", path, status, text)
		}
	}
	// Operators see its delivery status, but not its content.
	operator := newVisitor(t, s)
	operator.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	operator.ask("POST", "/profile/accounts/"+account.OperatorAccount.String(), nil)
	m := served(t, s, "owner@outside.test")[0]
	if status, _, text := operator.ask("GET", "/messages/"+m.ID.String(), nil); status != 200 || !strings.Contains(text, "Choose a new password") || strings.Contains(text, "/reset/") {
		t.Errorf("%d\n%s", status, text)
	}
	if _, err := s.Outbox.Open(t.Context(), account.OperatorAccount, m.ID); !fault.Is(err, fault.Denied) {
		t.Errorf("it is opened: %v", err)
	}
}

// Others in the account that has the addressee's mailbox can't read the link, nor those in an
// account to which that mailbox forwards. IMAP still shows it to the mailbox owner.
func TestLinksAreNotReadWhereTheyArrive(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
		demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: alice.Address, Name: "Alice", Password: colleague}, demo.ID); err != nil {
			t.Fatal(err)
		}
		callAPI(t, s, "PATCH", "/mailboxes/"+alice.ID.String(), object{"forward_to": []string{bob.Address, "alice@elsewhere.example"}, "keep_copy": true})
		token, err := s.Users.CreateInviteLink(t.Context(), demo.ID, "reader@outside.test", user.RoleReader, false)
		if err != nil {
			t.Fatal(err)
		}
		reader := newVisitor(t, s)
		if status, to, text := reader.ask("POST", "/join/"+token, url.Values{"name": {"N"}, "password": {colleague}}); status != 303 || to != "/" {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		who, err := s.Users.ByEmail(t.Context(), "reader@outside.test")
		if err == nil {
			err = s.Users.SetReadsMail(t.Context(), demo.ID, who.ID, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		if status, _, text := reader.ask("POST", "/forgotten", url.Values{"email": {alice.Address}}); status != 200 {
			t.Fatalf("%d\n%s", status, text)
		}
		shows := func(path string) {
			t.Helper()
			if status, _, text := reader.ask("GET", path, nil); strings.Contains(text, "/reset/") || status >= 500 {
				t.Errorf("%s shows a reader a link for the owner's password: %d\n%s", path, status, text)
			}
		}
		tells := func(path string, want int) {
			t.Helper()
			if a := s.API("GET", path, nil); strings.Contains(string(a.Body), "/reset/") || a.Status != want {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
		}
		look := func(box string, how int) {
			t.Helper()
			list := func() []any { return callAPI(t, s, "GET", "/mailboxes/"+box+"/messages", nil)["data"].([]any) }
			servertest.Eventually(t, func() string {
				if len(list()) == 0 {
					return "no link arrived"
				}
				return ""
			})
			m := list()[0].(object)
			id := m["id"].(string)
			if len(m["folders"].([]any)) != how || m["subject"] != "Choose a new password" {
				t.Errorf("it is listed as %v", m)
			}
			tells("/mailboxes/"+box+"/messages/"+id, 403)
			tells("/mailboxes/"+box+"/messages/"+id+"/raw", 403)
			tells("/mailboxes/"+box+"/messages/"+id+"/attachments/0", 403)
			tells("/mailboxes/"+box+"/export", 200)
			tells("/mailboxes/"+box+"/export?format=maildir", 200)
			for _, path := range []string{"", "/preview", "/raw", "/files/0"} {
				shows("/received/" + box + "/" + id + path)
			}
			shows("/threads/" + url.PathEscape(m["thread_id"].(string)))
			shows("/mailboxes/" + box + "/export")
			if status, _, text := reader.ask("GET", "/received/"+box+"/"+id, nil); status != 200 || !strings.Contains(text, "recipient alone") {
				t.Errorf("that it arrived is not shown: %d\n%s", status, text)
			}
		}
		look(alice.ID.String(), 1)
		look(bob.ID.String(), 1)
		var told []any
		servertest.Eventually(t, func() string {
			if told = callAPI(t, s, "GET", "/events?type=inbound_email", nil)["data"].([]any); len(told) < 2 {
				return "not both arrivals are told"
			}
			return ""
		})
		for _, e := range told {
			data := e.(object)["data"].(object)
			if data["private"] != true || data["gone"] != false || data["text"] != nil || data["html"] != nil || len(data["headers"].([]any)) != 0 {
				t.Errorf("an event tells %v", data)
			}
		}
		for _, m := range callAPI(t, s, "GET", "/outbound/messages", nil)["data"].([]any) {
			tells("/outbound/messages/"+m.(object)["id"].(string)+"/raw", 403)
			shows("/messages/" + m.(object)["id"].(string))
		}

		c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // the test is over with it
		if err := c.Login(alice.Address, alice.Password).Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Select("INBOX", nil).Wait(); err != nil {
			t.Fatal(err)
		}
		whole := &imap.FetchItemBodySection{}
		got, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{whole}}).Collect()
		if err != nil || len(got) != 1 || !strings.Contains(string(got[0].FindBodySection(whole)), "/reset/") {
			t.Errorf("its owner does not read it: %v %v", got, err)
		}
		if _, err := c.Copy(imap.SeqSetNum(1), "Archive").Wait(); err != nil {
			t.Fatal(err)
		}
		look(alice.ID.String(), 2)

		// Moving it to Junk must not affect the next link.
		if _, err := c.Copy(imap.SeqSetNum(1), "Junk").Wait(); err != nil {
			t.Fatal(err)
		}
		if all := callAPI(t, s, "GET", "/suppressions", nil)["data"].([]any); len(all) != 0 {
			t.Errorf("suppressed: %v", all)
		}
	})
}

// Others can't read the link either when it passes through another host, such as a filter in the
// domain's MX or a forwarder. A mailbox owner can't use the return path of such a message to hide
// their own mail from the account.
func TestLinksAreNotReadAfterAFilter(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := s.Dev.Mailboxes[0]
		demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "alice@filter.test", Name: "Alice", Password: colleague}, demo.ID); err != nil {
			t.Fatal(err)
		}
		if status, _, text := newVisitor(t, s).ask("POST", "/forgotten", url.Values{"email": {"alice@filter.test"}}); status != 200 {
			t.Fatalf("%d\n%s", status, text)
		}
		mailed(t, s, "alice@filter.test", 1)
		path := s.Inbound.Key.ReturnPath(int64(served(t, s, "alice@filter.test")[0].ID), 0) + "@bounces." + s.Dashboard.Host
		m := served(t, s, "alice@filter.test")[0]
		shows := func(what, from, text string, want int, to ...string) {
			t.Helper()
			raw := "From: no-reply@demo.test\r\nTo: alice@filter.test\r\nSubject: Choose a new password\r\n\r\n" + text + "\r\n"
			callAPI(t, s, "POST", "/sandbox/inbound", object{"raw": base64.StdEncoding.EncodeToString([]byte(raw)), "mail_from": from, "rcpt_to": to})
			list := "/mailboxes/" + alice.ID.String() + "/messages"
			m := callAPI(t, s, "GET", list, nil)["data"].([]any)[0].(object)
			if a := s.API("GET", list+"/"+m["id"].(string)+"/raw", nil); a.Status != want {
				t.Errorf("%s: %d %s", what, a.Status, a.Body)
			}
		}
		text, err := s.Outbox.ServiceMailText(t.Context(), m.ID)
		if err != nil || !strings.Contains(text, "/reset/") {
			t.Fatalf("%v %s", err, text)
		}
		text = strings.ReplaceAll(text, "\n", "\r\n")
		shows("forwarded", path, text, 403, alice.Address)
		shows("from another path", "b"+path, text, 200, alice.Address)
		shows("of his own", path, "https://x/reset/y", 200, alice.Address)
		shows("with more", path, text+"more", 200, alice.Address)
		callAPI(t, s, "POST", "/aliases", object{"address": "a@demo.test", "targets": []string{alice.Address}})
		if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "a@demo.test", Name: "A", Password: colleague}, demo.ID); err != nil {
			t.Fatal(err)
		}
		if err := s.Outbox.SendServiceMail(t.Context(), "a@demo.test", "Hello", "Hello"); err != nil {
			t.Fatal(err)
		}
		path = s.Inbound.Key.ReturnPath(int64(served(t, s, "a@demo.test")[0].ID), 0) + "@bounces." + s.Dashboard.Host
		shows("changed by a filter", path, "Hello\r\n-- checked", 403, "A@demo.test")
		callAPI(t, s, "POST", "/aliases", object{"address": "two@demo.test", "targets": []string{alice.Address, s.Dev.Mailboxes[1].Address, "partner@away.example.net"}})
		if err := s.Outbox.SendServiceMail(t.Context(), "two@demo.test", "Hello", "Hello"); err != nil {
			t.Fatal(err)
		}
		two := s.Inbound.Key.ReturnPath(int64(served(t, s, "two@demo.test")[0].ID), 0) + "@bounces." + s.Dashboard.Host
		servertest.Eventually(t, func() string { // the alias's external target gets the message without the return path
			for _, one := range callAPI(t, s, "GET", "/sandbox/outbox?limit=100", nil)["data"].([]any) {
				if e := one.(object)["envelope"].(object); fmt.Sprint(e["rcpt_to"]) == "[partner@away.example.net]" {
					if e["mail_from"] != "" {
						t.Errorf("the partner got it from %v", e["mail_from"])
					}
					return ""
				}
			}
			return "the partner got nothing"
		})
		shows("changed, for several mailboxes", two, "Hello\r\n-- checked", 403, "two@demo.test")
		shows("for somebody else as well", path, "Hello, you", 200, "a@demo.test", s.Dev.Mailboxes[1].Address)
		shows("for somebody else", path, "Hello, you", 200, alice.Address)
	})
}

// When a password is reset by a link, the other owners are notified.
func TestNewPasswordIsTold(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.Users.Create(t.Context(), user.CreateParams{Email: "owner@outside.test", Name: "Owner", Password: colleague}, demo.ID)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.CreateResetLink(t.Context(), owner, false)
	if err != nil {
		t.Fatal(err)
	}
	somebody := newVisitor(t, s)
	if status, _, text := somebody.ask("POST", "/sign-in", url.Values{"email": {s.Dev.Dashboard.Email}, "password": {s.Dev.Dashboard.Password}}); status != 303 {
		t.Fatalf("%d\n%s", status, text)
	}
	if status, to, text := somebody.ask("POST", "/reset/"+token, url.Values{"password": {colleague + " 2"}}); status != 303 || to != "/sign-in" {
		t.Fatalf("%d %s\n%s", status, to, text)
	}
	for _, email := range []string{owner.Email, s.Dev.Dashboard.Email} {
		got := served(t, s, email)
		if len(got) != 1 || got[0].Subject != "A new password of owner@outside.test" {
			t.Errorf("%s is told %v", email, got)
		}
	}
	entries, _, err := s.Audit.List(t.Context(), demo.ID, db.Page{Limit: 10})
	if err != nil || len(entries) != 2 || entries[1].Description != "Signed in." || entries[0].Actor.Name != owner.Email || entries[0].Description != "Chose a new password by a link." {
		t.Errorf("the activity says %v %v", entries, err)
	}
	if status, _, text := somebody.ask("POST", "/reset/"+token, url.Values{"password": {colleague + " 3"}}); status != 404 {
		t.Errorf("a used link: %d\n%s", status, text)
	}
}

// Headers that a stranger writes hide nothing from the account.
func TestClientsHideNothing(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	callAPI(t, s, "PATCH", "/mailboxes/"+alice.ID.String(), object{"forward_to": []string{"alice@elsewhere.example"}, "keep_copy": true})
	raw := "From: eve@elsewhere.example\r\nTo: " + alice.Address + "\r\nSubject: Hidden\r\nFeedback-ID: service:demo.test:0:mailstead\r\n\r\nread me\r\n"
	callAPI(t, s, "POST", "/sandbox/inbound", object{"raw": base64.StdEncoding.EncodeToString([]byte(raw)), "mail_from": "eve@elsewhere.example", "rcpt_to": []string{alice.Address}})
	m := callAPI(t, s, "GET", "/mailboxes/"+alice.ID.String()+"/messages", nil)["data"].([]any)[0].(object)
	for _, path := range []string{
		"/mailboxes/" + alice.ID.String() + "/messages/" + m["id"].(string) + "/raw",
		"/outbound/messages/" + callAPI(t, s, "GET", "/outbound/messages", nil)["data"].([]any)[0].(object)["id"].(string) + "/raw",
	} {
		if a := s.API("GET", path, nil); a.Status != 200 || !strings.Contains(string(a.Body), "read me") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// Service mail belongs to no customer. A suppression list, a limit, a suspended account or a
// missing domain doesn't stop it, and it counts against no account.
func TestServiceMailIsNobodys(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "owner@outside.test", Name: "Owner", Password: colleague}, demo.ID); err != nil {
			t.Fatal(err)
		}
		callAPI(t, s, "POST", "/suppressions", object{"email": "new@outside.test"})
		callAPI(t, s, "POST", "/suppressions", object{"email": "owner@outside.test"})
		if err := s.Limits.SetOverrides(t.Context(), demo.ID, quota.AccountLimits{Rates: quota.Rates{SendsPerDay: 1}}); err != nil {
			t.Fatal(err)
		}
		owner := newVisitor(t, s)
		owner.signIn("owner@outside.test", colleague)
		for range 2 {
			if status, to, text := owner.ask("POST", "/people", url.Values{"email": {"new@outside.test"}, "role": {"reader"}}); status != 303 || to != "/people" {
				t.Fatalf("%d\n%s", status, text)
			}
		}
		text := mailed(t, s, "new@outside.test", 2)
		for _, want := range []string{"From: \"" + s.Dashboard.Host + "\" <no-reply@" + s.Dashboard.Host + ">\r\n", "Auto-Submitted: auto-generated\r\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("it lacks %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "demo.test") {
			t.Errorf("it names a domain of the customer:\n%s", text)
		}
		callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"to": []string{"somebody@far.example"}})) // uses up the daily limit
		if err := s.Accounts.SetStatus(t.Context(), demo.ID, account.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		if status, _, text := newVisitor(t, s).ask("POST", "/forgotten", url.Values{"email": {"owner@outside.test"}}); status != 200 {
			t.Fatalf("%d\n%s", status, text)
		}
		link(t, mailed(t, s, "owner@outside.test", 1))
	})
}

// told is a log writer.
type told chan string

func (l told) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// If the page of a link fails, the link still works, so the log must not contain it.
func TestLinksAreNotLogged(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		who, err := s.Users.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		token, err := s.Users.CreateResetLink(t.Context(), who, false)
		if err != nil {
			t.Fatal(err)
		}
		if s.DB.Engine() == db.SQLite {
			dbtest.Exec(t, s.DB, db.SQL("CREATE TRIGGER fails BEFORE UPDATE ON dashboard_user BEGIN SELECT RAISE(ABORT, 'no'); END").With())
		} else {
			dbtest.Exec(t, s.DB, db.SQL("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'").With(),
				db.SQL("CREATE TRIGGER fails BEFORE UPDATE ON dashboard_user EXECUTE FUNCTION fails()").With())
		}
		log := make(told, 10)
		s.Dashboard.Log = slog.New(slog.NewTextHandler(log, nil))
		if status, _, text := newVisitor(t, s).ask("POST", "/reset/"+token, url.Values{"password": {colleague}}); status != 500 {
			t.Fatalf("%d\n%s", status, text)
		}
		if line := <-log; !strings.Contains(line, "/reset/{token}") || strings.Contains(line, token) {
			t.Error("the log says", line)
		}
		if _, err := s.Users.FindLink(t.Context(), token); err != nil {
			t.Error("the link is over:", err)
		}
	})
}
