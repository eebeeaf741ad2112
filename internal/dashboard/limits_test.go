// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestLimitsAndSandbox(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/sandbox")
	b.reads("Nothing caught yet")
	b.accessible()
	id := callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"to": []string{"somebody@far.example"}, "subject": "Out into the world", "html": "<p>Hello <b>there</b></p>"}))["id"].(string)
	settles(t, s, id, "delivered")
	b.open("/sandbox")
	b.reads("Out into the world")
	b.looks("sandbox")
	path := script[string](b, `document.querySelector("main tbody a").getAttribute("href")`)
	b.open(path)
	b.reads("somebody@far.example")
	b.looks("captured")
	if raw := script[string](b, `fetch(location.pathname + "/raw").then(r => r.text())`); len(raw) < 100 {
		t.Error(raw)
	}
	b.open("/sandbox")
	script[bool](b, `document.querySelector("details.danger").open = true`)
	b.press("/sandbox/clear")
	b.reads("Nothing caught yet")
	b.open(path)
	b.reads("Not found")

	b.open("/sandbox")
	b.fill("from", "nobody")
	b.fill("to", "nowhere@demo.test")
	b.press("/sandbox/receive")
	b.reads("This must be an address")
	b.accessible()
	b.fill("from", "Eve <eve@far.example>")
	b.press("/sandbox/receive")
	b.reads("550")
	b.accessible()
	b.fill("to", "alice@demo.test")
	b.fill("subject", "Guten Tag, Grüße")
	b.press("/sandbox/receive")
	b.reads("Guten Tag, Grüße")
	b.reads("eve@far.example")

	b.open("/limits")
	b.reads("Messages in this hour")
	b.reads("999\u202f999 of 1\u202f000\u202f000 left")
	b.looks("limits")
}
