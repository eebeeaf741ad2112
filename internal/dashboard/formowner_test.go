// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/user"
)

// two returns the demo account and another account of the same owner.
func two(t *testing.T, s *servertest.Server) (demo, other account.Account) {
	t.Helper()
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	if other, err = s.Accounts.Create(t.Context(), "other@else.example", "Elsewhere"); err != nil {
		t.Fatal(err)
	}
	who, err := s.Users.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.CreateInviteLink(t.Context(), other.ID, who.Email, user.RoleOwner, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.AcceptInvitation(t.Context(), token, who); err != nil {
		t.Fatal(err)
	}
	return demo, other
}

// A form has no effect if another account was opened in another tab in the meantime. It can be sent
// again in its own account.
func TestFormOfAnotherAccount(t *testing.T) {
	s := servertest.Start(t)
	demo, other := two(t, s)
	b := browse(t, s)
	b.signIn(s)
	look := func(at account.Account) {
		t.Helper()
		script[bool](b, `fetch("/profile/accounts/`+at.ID.String()+`", {method: "POST"}).then((a) => a.ok)`)
	}
	look(demo)
	b.open("/domains")
	b.fill("name", "typed.example")
	look(other)
	b.press("/domains")
	b.reads("This form was made for another account, and you look at Elsewhere now.")
	b.accessible()
	if list, _, err := s.Domains.List(t.Context(), other.ID, db.Page{}); err != nil || len(list) > 0 {
		t.Fatal("it is in the other account:", list, err)
	}
	look(demo)
	script[string](b, `document.documentElement.dataset.before = "yes"`)
	b.do(chromedp.Reload(), ready(`html:not([data-before]) main`))
	b.reads("Added the domain typed.example.")

	// A script shows the same error next to the entered values.
	b.open("/migrations/many")
	b.fill("host", "old.example")
	look(other)
	script[bool](b, `new Promise(done => {
		document.body.addEventListener("htmx:afterSettle", () => done(true), {once: true});
		const form = document.querySelector('form[action="/migrations/many"]');
		form.noValidate = true;
		form.requestSubmit();
	})`)
	b.reads("then press the button once more")
	if host := script[string](b, `document.querySelector("[name=host]").value`); host != "old.example" {
		t.Errorf("what was entered is %q now", host)
	}
}

// The server checks the owner of every form: in several accounts of a user, with a file, and in two
// mailboxes of one owner. Forms about the user themselves work in every account.
func TestFormsSayWhomTheyAreFor(t *testing.T) {
	s := servertest.Start(t)
	demo, other := two(t, s)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	look := func(at account.Account) {
		t.Helper()
		if status, _, text := v.ask("POST", "/profile/accounts/"+at.ID.String(), url.Values{"made_for": {"another"}}); status != 303 {
			t.Fatalf("%d\n%s", status, text)
		}
	}
	of := regexp.MustCompile(`<form method="post"[^>]*><input type="hidden" name="made_for" value="([^"]+)">`)
	said := func(path string) string {
		t.Helper()
		_, _, text := v.ask("GET", path, nil)
		found := of.FindAllStringSubmatch(text, -1)
		if len(found) == 0 || len(found) != strings.Count(text, `<form method="post"`) {
			t.Fatalf("%d forms of %s say whom they are for:\n%s", len(found), path, text)
		}
		return found[0][1]
	}
	refused := func(path string, form url.Values) {
		t.Helper()
		if status, _, text := v.ask("POST", path, form); status != 409 || !strings.Contains(text, "This form was made for another") {
			t.Errorf("%s: %d\n%s", path, status, text)
		}
	}

	guest, err := s.Users.Create(t.Context(), user.CreateParams{Email: "guest@else.example", Name: "Guest", Password: colleague}, demo.ID, other.ID)
	if err != nil {
		t.Fatal(err)
	}
	look(demo)
	made := said("/people")
	look(other)
	role := "/people/" + guest.ID.String() + "/role"
	refused(role, url.Values{"made_for": {made}, "role": {"reader"}})
	if in, err := s.Users.Members(t.Context(), other.ID); err != nil || in[1].Role != user.RoleOwner {
		t.Error("a role was changed in the other account:", in, err)
	}

	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("made_for", made) // to memory
	_ = form.WriteField("fallback", "manual")
	file, err := form.CreateFormFile("file", "list.csv")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write([]byte("email\n" + strings.Repeat("somebody@far.example\n", 50_000)))
	_ = form.Close()
	a, err := v.http.Post(v.base+"/suppressions/import", form.FormDataContentType(), &body)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if list, _, err := s.Suppressions.List(t.Context(), other.ID, suppression.Filter{}, db.Page{}); a.StatusCode != http.StatusConflict || err != nil || len(list) > 0 {
		t.Error("a file for another account:", a.Status, list, err)
	}

	look(demo)
	if status, _, text := v.ask("POST", role, url.Values{"made_for": {made}, "role": {"reader"}}); status != 303 {
		t.Errorf("in its own account: %d\n%s", status, text)
	}

	enter := func(n int) {
		t.Helper()
		box := s.Dev.Mailboxes[n]
		if status, _, text := v.ask("POST", "/mailbox/sign-in", url.Values{"address": {box.Address}, "password": {box.Password}}); status != 303 {
			t.Fatalf("%d\n%s", status, text)
		}
	}
	enter(0)
	away := url.Values{"made_for": {said("/mailbox")}, "enabled": {"yes"}, "interval_days": {"7"}, "text": {"Away."}}
	v.ask("POST", "/mailbox/sign-out", nil)
	enter(1)
	refused("/mailbox/vacation", away)
	if is, err := s.Mailboxes.Vacation(t.Context(), demo.ID, s.Dev.Mailboxes[1].ID); err != nil || is.Enabled {
		t.Error("the other mailbox answers:", is, err)
	}
	enter(0)
	if status, _, text := v.ask("POST", "/mailbox/vacation", away); status != 303 {
		t.Errorf("in its own mailbox: %d\n%s", status, text)
	}
}
