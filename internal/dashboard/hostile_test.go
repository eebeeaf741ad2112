// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Names, responses and page addresses from strangers are shown as text: no script in them runs, and
// no element of them is in the page.
func TestHostileNames(t *testing.T) {
	const evil = "\"'></textarea></pre><img id=evil src=x onerror=\"window.evil=1\"><script id=evil>window.evil=1</script>{{.}}${evil}`id`javascript:window.evil=1"
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(evil))
	}))
	defer receiver.Close()
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	box, password, err := s.Mailboxes.Create(t.Context(), demo.ID, mailbox.CreateParams{Domain: s.Dev.Domain.ID, LocalPart: "evil", DisplayName: evil})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Accounts.CreateKey(t.Context(), demo.ID, account.KeyParams{Name: evil[:90]}); err != nil {
		t.Fatal(err)
	}
	hook, _, err := s.Webhooks.Create(t.Context(), demo.ID, webhook.Spec{URL: receiver.URL + "/?" + evil[:20] + url.QueryEscape(evil), Kinds: []string{webhook.AllKinds}, Description: evil})
	if err != nil {
		t.Fatal(err)
	}
	tested, _, err := s.Webhooks.Test(t.Context(), demo.ID, hook.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	settles(t, s, callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"to": []string{"far@far.example"}, "subject": evil, "from_name": evil}))["id"].(string), "delivered")

	moved := callAPI(t, s, "POST", "/migrations", object{"mailbox_id": box.ID.String(), "source": object{"host": "localhost", "port": s.Dev.Ports["imaps"], "username": evil, "password": "Secret-1", "insecure_skip_verify": true}})["id"].(string)

	harmless := func(where string) {
		t.Helper()
		// Wait for the effect of an image or a script.
		script[bool](b, `fetch("/static/").then(() => new Promise(done => setTimeout(() => done(true))))`)
		if script[bool](b, `!!(window.evil || document.querySelector("#evil, main script, [onerror], [href^='javascript:'], [src^='javascript:']"))`) {
			t.Errorf("%s runs what was entered, or has its elements", where)
		}
	}
	q := url.QueryEscape(evil)
	for _, path := range []string{
		"/mailboxes", "/mailboxes?search=" + q + "&domain=" + q, "/mailboxes/" + box.ID.String(), "/mailboxes/" + box.ID.String() + "/setup",
		"/migrations", "/migrations/" + moved, "/migrations/new?again=" + moved, "/messages?thread=" + q + "&mailbox=" + q + "&direction=" + q,
		"/keys", "/webhooks", "/webhooks/" + hook.ID.String() + "?state=" + q, "/webhooks/" + hook.ID.String() + "/edit",
		"/webhooks/" + hook.ID.String() + "/deliveries/" + tested.ID.String(), "/sandbox", "/limits", "/nowhere/" + q,
	} {
		b.open(path)
		harmless(path)
	}
	b.open("/sandbox")
	b.open(script[string](b, `document.querySelector("main tbody a").getAttribute("href")`))
	harmless("the captured message")
	for path, fields := range map[string][]string{
		"/mailboxes": {"local_part", "display_name"}, "/keys": {"name", "allowed_ips"}, "/webhooks": {"description", "about"},
	} {
		b.open(path + "/new")
		script[string](b, `document.querySelector("main form").noValidate = true; ""`)
		for _, f := range fields {
			b.fill(f, evil)
		}
		b.press(path)
		if !script[bool](b, `!!document.querySelector(".alert")`) {
			t.Errorf("%s takes it all", path)
		}
		harmless("the form of " + path)
	}
	b.open("/mailbox")
	b.fill("address", box.Address)
	b.fill("password", password)
	b.press("/mailbox/sign-in")
	b.reads("Change your password")
	harmless("/mailbox")
	mutt := script[string](b, `[...document.querySelectorAll("pre")].pop().textContent`)
	if want := `set from='evil@demo.test'`; !strings.Contains(mutt, want) || !strings.Contains(mutt, "set realname='\"'\\''></textarea>") {
		t.Errorf("the configuration of mutt:\n%s", mutt)
	}
}
