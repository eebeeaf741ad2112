// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestSetupPages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	alice := s.Dev.Mailboxes[0]
	path := "/mailboxes/" + alice.ID.String() + "/setup"
	b.open(path)
	b.reads(alice.Address)
	b.looks("setup")
	script[string](b, `document.querySelectorAll("main details").forEach(d => d.open = true); ""`)
	b.accessible()
	b.press(path + "/check")
	b.reads("It works")
	if n := script[int](b, `document.querySelectorAll(".trials .good").length`); n != 12 {
		t.Errorf("%d steps are well:\n%s", n, b.text())
	}
	b.looks("setup-checked")
	b.do(colours("light"))

	b.open("/mailbox")
	b.reads("Sign in to your mailbox")
	b.looks("mailbox-sign-in")
	b.fill("address", alice.Address)
	b.fill("password", "not the password")
	b.press("/mailbox/sign-in")
	b.reads("The address or the password is wrong.")
	b.fill("password", alice.Password)
	b.press("/mailbox/sign-in")
	b.reads("Change your password")
	b.looks("own-mailbox")
	b.press("/mailbox/check")
	b.reads("It works")
	b.open("/mailbox")
	away(b, "/mailbox")
	b.looks("own-mailbox-away")
	b.fill("current", "not the password")
	b.fill("password", "My-new-one-7")
	b.press("/mailbox/password")
	b.reads("This is not your present password.")
	b.accessible()
	b.fill("current", alice.Password)
	b.fill("password", "short")
	b.press("/mailbox/password")
	b.reads("at least 8 characters")
	b.fill("current", alice.Password)
	b.fill("password", "My-new-one-7")
	b.press("/mailbox/password")
	b.reads("Changed your password.")
	if _, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, alice.Address, "My-new-one-7", here); err != nil {
		t.Error("the new password:", err)
	}
	b.open("/mailbox/access")
	b.reads("these pages")
	b.fill("name", "My phone")
	b.tick("protocols", "imap")
	b.tick("protocols", "smtp")
	b.press("/mailbox/access")
	b.reads("Give imap, smtp or both.")
	b.accessible()
	b.tick("protocols", "imap")
	b.press("/mailbox/access")
	b.reads("A password for My phone")
	b.looks("app-password")
	app := script[string](b, `document.querySelectorAll("main code")[1].textContent`)
	if _, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, alice.Address, app, here); err != nil {
		t.Error("the app password:", err)
	}
	b.open("/mailbox/access")
	b.reads("My phone")
	b.looks("own-access")
	b.press(script[string](b, `document.querySelector("tbody form").getAttribute("action")`))
	b.reads("Revoked an app password")
	if _, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, alice.Address, app, here); err == nil {
		t.Error("a revoked app password is good")
	}
	box, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, alice.Address, "My-new-one-7", here)
	if err != nil {
		t.Fatal(err)
	}
	session := s.Mailboxes.OpenSession(box, mailbox.IMAP, here)
	s.Mailboxes.SetSessionProgram(session, "Thunderbird 140.0")
	b.open("/mailboxes/" + alice.ID.String() + "/access")
	b.reads("Thunderbird 140.0")
	b.accessible()
	s.Mailboxes.CloseSession(session)
	b.open("/mailboxes/" + alice.ID.String() + "/access")
	if strings.Contains(b.text(), "Signed in now") {
		t.Error("a session that has ended is shown")
	}
	b.reads("wrong password")
	b.fill("name", "The printer")
	b.press("/mailboxes/" + alice.ID.String() + "/access")
	b.reads("A password for The printer")
	b.open("/mailbox")
	b.press("/mailbox/sign-out")
	b.open("/mailbox")
	b.reads("Sign in to your mailbox")
	b.open("/")
	b.reads("last 24 hours") // the dashboard session is independent
}

// A mailbox owner is signed in only for their own mailbox, until its password changes.
func TestOwner(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	enter := func() *visitor {
		v := newVisitor(t, s)
		if status, to, text := v.ask("POST", "/mailbox/sign-in", url.Values{"address": {alice.Address}, "password": {alice.Password}}); status != 303 || to != "/mailbox" {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		return v
	}
	shows := func(v *visitor, want int) {
		t.Helper()
		for _, path := range []string{"/mailbox", "/mailbox/profile", "/mailbox/access"} {
			if status, to, _ := v.ask("GET", path, nil); status != want || want == 303 && to != "/mailbox/sign-in" {
				t.Errorf("%s: %d %s", path, status, to)
			}
		}
	}
	nobody := newVisitor(t, s)
	shows(nobody, 303)
	for _, path := range []string{"/mailbox/check", "/mailbox/password", "/mailbox/vacation", "/mailbox/forwarding", "/mailbox/access", "/mailbox/access/" + alice.ID.String() + "/revoke"} {
		if status, _, _ := nobody.ask("POST", path, nil); status != 401 {
			t.Errorf("%s: %d", path, status)
		}
	}
	one, other := enter(), enter()
	shows(one, 200)
	if status, _, _ := one.ask("GET", "/mailboxes", nil); status != 303 {
		t.Error("a mailbox's owner sees the dashboard:", status)
	}
	if status, to, text := one.ask("POST", "/mailbox/password", url.Values{"current": {alice.Password}, "password": {"Another-one-8"}}); status != 303 || to != "/mailbox" {
		t.Fatalf("%d %s\n%s", status, to, text)
	}
	shows(one, 200)
	shows(other, 303)
	account, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Mailboxes.Delete(t.Context(), account.ID, alice.ID); err != nil {
		t.Fatal(err)
	}
	shows(one, 303)
}

// A mailbox owner's actions are in the account's activity, just like those of the members.
func TestOwnersActivity(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	v := newVisitor(t, s)
	v.ask("POST", "/mailbox/sign-in", url.Values{"address": {alice.Address}, "password": {alice.Password}})
	ask := func(path string, form url.Values) string {
		t.Helper()
		status, _, text := v.ask("POST", path, form)
		if status != 200 && status != 303 {
			t.Fatalf("%s: %d\n%s", path, status, text)
		}
		return text
	}
	ask("/mailbox/access", url.Values{"name": {"The printer"}, "protocols": {"smtp"}})
	_, _, text := v.ask("GET", "/mailbox/access", nil)
	ask(regexp.MustCompile(`/mailbox/access/[^/"]+/revoke`).FindString(text), nil)
	ask("/mailbox/vacation", url.Values{"enabled": {"yes"}, "interval_days": {"7"}, "text": {"Away."}})
	ask("/mailbox/forwarding", url.Values{"forward_to": {"alice@elsewhere.example"}, "keep_copy": {"yes"}})
	ask("/mailbox/password", url.Values{"current": {alice.Password}, "password": {"Another-one-8"}})
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	entries, _, err := s.Audit.List(t.Context(), demo.ID, db.Page{})
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, d := range entries {
		said += d.Actor.Name + ": " + d.Description + "\n"
	}
	const want = `alice@demo.test: Changed your password. Your mail clients ask for the new one.
alice@demo.test: Mail of alice@demo.test is forwarded.
alice@demo.test: Set the vacation reply of alice@demo.test.
alice@demo.test: Revoked an app password of alice@demo.test.
alice@demo.test: Made an app password of alice@demo.test for The printer.
`
	if said != want {
		t.Errorf("the activity says\n%swant\n%s", said, want)
	}
}

// A vacation reply that is too long is shown again to be shortened, even with characters that take
// many bytes in a form.
func TestLongVacationReply(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	v := newVisitor(t, s)
	v.ask("POST", "/mailbox/sign-in", url.Values{"address": {alice.Address}, "password": {alice.Password}})
	form := url.Values{"enabled": {"yes"}, "interval_days": {"7"}, "text": {strings.Repeat("Отпуск\n", 2000)}}
	if status, _, text := v.ask("POST", "/mailbox/vacation", form); status != 422 || !strings.Contains(text, "Give at most 16384 bytes of text.") || !strings.Contains(text, form.Get("text")) {
		t.Errorf("%d\n%s", status, text)
	}
	form.Set("text", strings.Repeat("x", 300<<10))
	if status, _, text := v.ask("POST", "/mailbox/vacation", form); status != 413 || !strings.Contains(text, "the 256 KB that this form may have") {
		t.Errorf("%d\n%s", status, text)
	}
	form.Set("text", strings.Repeat("\r\n", 16<<10-5)+"Away.")
	if status, _, text := v.ask("POST", "/mailbox/vacation", form); status != 303 {
		t.Errorf("as long as it may be: %d\n%s", status, text)
	}
}

// The local part of an address may have any letters, also in the browser's validation.
func TestOwnerWithAnyMails(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	box, password, err := s.Mailboxes.Create(t.Context(), demo.ID, mailbox.CreateParams{Domain: s.Dev.Domain.ID, LocalPart: "zoë"})
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t, s)
	b.open("/mailbox/sign-in")
	b.fill("address", box.Address)
	b.fill("password", password)
	if !script[bool](b, `document.querySelector("main form").checkValidity()`) {
		t.Fatal("the browser does not send the form")
	}
	b.press("/mailbox/sign-in")
	b.reads("Change your password")
}

var picture = regexp.MustCompile(`src="data:image/png;base64,([^"]+)"`)

// The QR code's link needs no session, expires, and works only for its mailbox.
func TestPhone(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	path := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/setup"
	_, _, text := v.ask("GET", path, nil)
	found := picture.FindStringSubmatch(strings.ReplaceAll(text, "&#43;", "+"))
	if found == nil {
		t.Fatal(text)
	}
	raw, err := base64.StdEncoding.DecodeString(found[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	nobody := newVisitor(t, s)
	link := s.Dashboard.PhoneProfileURL(s.Dev.Mailboxes[0].ID)
	status, _, profile := nobody.ask("GET", strings.TrimPrefix(link, s.Dev.BaseURL), nil)
	if status != 200 || !strings.Contains(profile, "com.apple.mail.managed") || !strings.Contains(profile, s.Dev.Mailboxes[0].Address) {
		t.Fatalf("%d\n%s", status, profile)
	}
	if strings.Contains(profile, s.Dev.Mailboxes[0].Password) {
		t.Error("the profile has the password")
	}
	if status, _, same := v.ask("GET", path+"/profile", nil); status != 200 || same != profile {
		t.Errorf("the download: %d", status)
	}
	at := len(link) - 60
	for i := at; i < len(link); i++ {
		forged := []byte(link)
		if forged[i] == '/' {
			continue
		}
		if forged[i]++; forged[i] == '[' || forged[i] == '{' || forged[i] == ':' || forged[i] == '.' || forged[i] == '`' {
			forged[i] = 'A'
		}
		if status, _, _ := nobody.ask("GET", strings.TrimPrefix(string(forged), s.Dev.BaseURL), nil); status == 200 {
			t.Errorf("a forged link works: %s", forged)
		}
	}
}
