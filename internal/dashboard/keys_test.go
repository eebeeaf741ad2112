// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// tick ticks or clears the checkbox with a value.
func (b *browser) tick(name, value string) {
	b.t.Helper()
	script[string](b, `document.querySelector('main input[name="`+name+`"][value="`+value+`"]').click(); ""`)
}

func TestKeyPages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/keys/new")
	b.looks("key-new")
	b.fill("name", "the shop")
	b.fill("allowed_ips", "not an address")
	b.press("/keys")
	b.reads("Choose what the key may do.")
	b.accessible()
	b.tick("scopes", "domains.read")
	b.press("/keys")
	b.reads("Give an IP address")
	if !script[bool](b, `document.querySelector('[value="domains.read"]').checked`) {
		t.Error("what was ticked is forgotten")
	}
	b.fill("expires_at", "9999-12-31") // it would expire at the end of that day, a time that JSON can't encode
	b.press("/keys")
	b.reads("Give a time before the year 10000.")
	b.fill("expires_at", "9998-12-31")
	b.fill("allowed_ips", "127.0.0.1\n192.0.2.0/24")
	b.fill("domain", "demo.test")
	b.fill("sends_per_day", "99999999999")
	b.press("/keys")
	b.reads("above what is allowed")
	b.fill("sends_per_day", "1000")
	b.press("/keys")
	b.reads("the shop is ready")
	b.looks("key-made")
	key := script[string](b, `document.querySelector("main code").textContent`)
	if a := s.APIWithKey(key, "GET", "/domains", nil); a.Status != 200 {
		t.Errorf("the key that was shown: %d %s", a.Status, a.Body)
	}
	if a := s.APIWithKey(key, "GET", "/mailboxes", nil); a.Status != 403 {
		t.Errorf("it may do what was not ticked: %d %s", a.Status, a.Body)
	}
	if a := s.API("GET", "/api-keys", nil); a.Status != 200 || !strings.Contains(string(a.Body), "9999-01-01T00:00:00.000Z") {
		t.Errorf("the keys: %d %s", a.Status, a.Body)
	}
	b.open("/keys")
	b.reads("192.0.2.0/24")
	b.looks("keys")
	script[string](b, `document.querySelectorAll("main details").forEach(d => d.open = true); ""`)
	action := script[string](b, `document.querySelector("main article form").getAttribute("action")`)
	b.press(action)
	b.reads("Deleted the API key the shop.")
	if a := s.APIWithKey(key, "GET", "/domains", nil); a.Status != 401 {
		t.Errorf("a deleted key: %d %s", a.Status, a.Body)
	}
}

// Double-clicking the button creates one key, and its token is shown. A preview is made for each
// click.
func TestPressedTwice(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	for _, form := range []struct {
		path, button string
		want         int
	}{{"/keys/new", `form[action="/keys"] button`, 1}, {"/templates/new", `button[formtarget]`, 2}} {
		b.open(form.path)
		if got := script[int](b, `(() => {
			let sent = 0;
			addEventListener("submit", (e) => { if (!e.defaultPrevented) sent++; e.preventDefault(); });
			const button = document.querySelector('`+form.button+`');
			button.form.noValidate = true;
			button.click(); button.click();
			return sent;
		})()`); got != form.want {
			t.Errorf("the form of %s is sent %d times, want %d", form.path, got, form.want)
		}
	}
}

// Members see keys but can't create any; every scope can be ticked.
func TestKeysAreOwners(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.CreateInviteLink(t.Context(), demo.ID, "worker@demo.test", user.RoleMember, false)
	if err != nil {
		t.Fatal(err)
	}
	worker, owner := newVisitor(t, s), newVisitor(t, s)
	worker.ask("POST", "/join/"+token, url.Values{"name": {"N"}, "password": {colleague}})
	owner.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	if status, _, text := worker.ask("GET", "/keys", nil); status != 200 || strings.Contains(text, "/keys/new") {
		t.Error("a member's list:", status)
	}
	token, err = s.Users.CreateInviteLink(t.Context(), demo.ID, "reader@demo.test", user.RoleReader, false)
	if err != nil {
		t.Fatal(err)
	}
	reader := newVisitor(t, s)
	reader.ask("POST", "/join/"+token, url.Values{"name": {"N"}, "password": {colleague}})
	box := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String()
	for path, want := range map[string]int{
		"/mailboxes": 200, box: 200, box + "/setup": 200, box + "/access": 200, "/aliases": 200, "/webhooks": 200, "/keys": 200, "/limits": 200, "/sandbox": 200,
		"/mailboxes/new": 403, "/webhooks/new": 403, "/keys/new": 403,
	} {
		if status, _, text := reader.ask("GET", path, nil); status != want || strings.Contains(text, `<button class="bad"`) {
			t.Errorf("a reader at %s: %d", path, status)
		}
	}
	for _, path := range []string{"/keys", "/keys/" + demo.ID.String() + "/delete"} {
		if status, _, _ := worker.ask("POST", path, url.Values{"name": {"x"}, "scopes": {"*"}}); status != 403 {
			t.Errorf("a member at %s: %d", path, status)
		}
	}
	_, _, form := owner.ask("GET", "/keys/new", nil)
	for _, scope := range account.Scopes() {
		if !strings.Contains(form, `value="`+scope+`"`) {
			t.Error("no box for", scope)
		}
		status, _, text := owner.ask("POST", "/keys", url.Values{"name": {"with " + scope}, "scopes": {scope}})
		if status != 200 || !strings.Contains(text, "curl ") {
			t.Errorf("%s: %d", scope, status)
		}
	}
	if status, _, _ := owner.ask("POST", "/keys", url.Values{"name": {"x"}, "scopes": {account.ScopeOperator}}); status != 422 {
		t.Error("a key of operators:", status)
	}
}
