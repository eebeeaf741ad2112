// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestWebhookPages(t *testing.T) {
	var status atomic.Int64
	status.Store(500)
	got := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, `"><script>alert(1)</script> out of order`)
	}))
	defer receiver.Close()

	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/webhooks")
	b.reads("No webhook yet")
	b.looks("webhooks-none")
	b.open("/webhooks/new")
	b.looks("webhook-new")
	b.fill("url", "http://192.0.2.1:80/x")
	b.fill("about", "demo.test\nnobody@demo.test")
	b.press("/webhooks")
	b.reads("Line 2 is no domain or mailbox of yours.")
	b.accessible()
	b.fill("about", "demo.test\nAlice@demo.test")
	b.press("/webhooks")
	b.reads("Name at least one kind of event")
	b.accessible()
	b.fill("url", receiver.URL+"/hook")
	b.fill("description", "the shop")
	b.tick("events", "bounce")
	b.tick("events", "delivery_status")
	b.press("/webhooks")
	b.reads("The webhook is ready")
	b.reads("whsec_")
	b.looks("webhook-secret")
	path := script[string](b, `document.querySelector("main .button").getAttribute("href")`)

	b.open(path)
	b.reads("Nothing sent yet")
	b.reads("alice@demo.test")
	b.accessible()
	b.fill("event", "bounce")
	b.press(path + "/test")
	if body := <-got; !strings.Contains(body, `"test":true`) {
		t.Error(body)
	}
	b.reads("The receiver answered with status 500")
	script[string](b, `document.querySelectorAll("main details").forEach(d => d.open = true); ""`)
	b.reads("out of order")
	b.looks("delivery")
	delivery := b.path()
	status.Store(204)
	b.press(delivery + "/redeliver")
	<-got
	b.reads("again.")
	b.open(path)
	b.reads("bounce")
	b.looks("webhook")
	b.open(path + "?state=pending")
	b.accessible()
	b.open(path + "/edit")
	b.reads("Change a webhook")
	b.accessible()
	b.tick("events", "all")
	script[string](b, `document.querySelector("textarea").value = ""`)
	b.press(path + "/edit")
	b.reads("Changed the webhook")
	b.reads("everything")
	b.press(path + "/disable")
	b.reads("gets nothing")
	b.fill("since", "2020-01-01T00:00")
	b.press(path + "/replay")
	b.reads("The webhook is disabled.")
	b.accessible()
	b.press(path + "/enable")
	b.reads("Enabled the webhook")
	status.Store(500)
	b.fill("since", "2020-01-01T00:00")
	b.press(path + "/replay")
	b.reads("again.")
	servertest.Eventually(t, func() string {
		if callAPI(t, s, "GET", path, nil)["failing_since"] == nil {
			return "no attempt has failed"
		}
		return ""
	})
	for _, at := range []string{"/webhooks", path} {
		b.open(at)
		if got := script[string](b, `document.querySelector("main .badge").textContent`); !strings.Contains(got, "failing") {
			t.Errorf("%s shows %q", at, got)
		}
	}
	status.Store(204)
	b.press(path + "/rotate")
	b.reads("The new secret")
	b.reads("whsec_")
	b.open("/webhooks")
	b.reads("the shop")
	b.looks("webhooks")
	b.open(path)
	script[bool](b, `document.querySelector("details.danger").open = true`)
	b.press(path + "/delete")
	b.reads("Deleted the webhook")
	b.reads("No webhook yet")
	b.open(path)
	b.reads("Not found")
}

var insertDomain = db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at,
	next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
	VALUES ($1, $2, $3, 'pending', FALSE, '', FALSE, FALSE, FALSE, '', 0, $4, 0, 0, 0, 0, 0)`)

// An account's oldest domain works like any other, however many are newer. A webhook may filter by
// it, and by mailboxes in addition to the maximum number of domains.
func TestManyDomains(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		err = s.DB.Tx(t.Context(), func(tx *db.Tx) error {
			for n := range 1000 {
				if _, err := tx.Exec(t.Context(), insertDomain.With(s.DB.NewID(), demo.ID, fmt.Sprintf("d%d.example", n), db.Micros(time.Now().Add(time.Hour)))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		v := newVisitor(t, s)
		v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		about := "DEMO.test\nalice@demo.test\nbob@demo.test"
		for n := range 99 {
			about += fmt.Sprintf("\nd%d.example", n)
		}
		form := url.Values{"url": {"http://127.0.0.1:4711/hook"}, "events": {"bounce"}, "about": {about}}
		if status, _, text := v.ask("POST", "/webhooks", form); status != 200 {
			t.Errorf("%d\n%s", status, text)
		}
		// Domains that can't send yet don't keep the service from mailing the account's members.
		if status, _, text := v.ask("POST", "/people", url.Values{"email": {"guest@else.example"}, "role": {"reader"}}); status != 303 {
			t.Errorf("an invitation: %d\n%s", status, text)
		}
		// It is not among the options: the user types its name.
		for path, want := range map[string]string{
			"/mailboxes/new": `<input id="f-domain"`, "/keys/new": `<input id="f-domain"`,
			"/mailboxes?domain=Demo.test": "alice@demo.test", "/mailboxes?domain=d7.example": "No mailbox like that", "/mailboxes?domain=none.example": "No mailbox like that",
		} {
			if status, _, text := v.ask("GET", path, nil); status != 200 || !strings.Contains(text, want) {
				t.Errorf("%s: %d\n%s", path, status, text)
			}
		}
		box := url.Values{"local_part": {"carol"}, "quota_mb": {"100"}}
		for name, want := range map[string]int{"Demo.test": 200, "none.example": 422, "": 422} {
			box.Set("domain", name)
			if status, _, text := v.ask("POST", "/mailboxes", box); status != want {
				t.Errorf("a mailbox under %q: %d\n%s", name, status, text)
			}
		}
	})
}
