// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

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
	b.fill("since", "2020-01-01T00:00")
	b.press(path + "/replay")
	b.reads("again.")
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
