// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// shows is the directory for everyPage's screenshots; "" for none.
var shows = os.Getenv("MAILSTEAD_SHOW_PAGES")

// furnish adds content to every page and returns the pages' paths.
func furnish(t *testing.T, s *servertest.Server) (paths []string) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(receiver.Close)
	id := func(path string, body object) string { return callAPI(t, s, "POST", path, body)["id"].(string) }
	alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	hook := id("/webhooks", object{"url": receiver.URL + "/a-rather-long-address/of-a-receiver/of-events/that-does-not-fit-on-a-phone", "events": []string{"all"}})
	template := id("/templates", object{"name": "Order paid", "subject": "Your order {{order}}", "html": "<p>{{order}}</p>", "variables": []object{{"key": "order", "type": "string", "required": true}}})
	message := id("/outbound/send", sendRequest(object{"subject": "A subject that is so long that it takes more than one line on most screens, and many on a phone", "to": []string{"bounced@simulator.test", alice.Address}, "thread_id": "order-42"}))
	settles(t, s, message, "bounced")
	outside := id("/outbound/send", sendRequest(object{"to": []string{"somebody@elsewhere.example"}}))
	settles(t, s, outside, "delivered")
	got := callAPI(t, s, "POST", "/sandbox/inbound", object{"from": "bob@outside.test", "to": []string{alice.Address}, "subject": "Hello", "text": "Hello"})["recipients"].([]any)[0].(object)
	caught := callAPI(t, s, "GET", "/sandbox/outbox", nil)["data"].([]any)[0].(object)["id"].(string)
	alias := id("/aliases", object{"address": "info@demo.test", "targets": []string{alice.Address}})
	id("/api-keys", object{"name": strings.Repeat("W", 90)})
	long := "/mailboxes/" + id("/mailboxes", object{"domain_id": s.Dev.Domain.ID.String(), "local_part": strings.Repeat("w", 64)})
	tested := callAPI(t, s, "POST", "/webhooks/"+hook+"/test", object{"event": "bounce"})
	delivery, _ := tested["id"].(string)
	migration := id("/migrations", object{"mailbox_id": bob.ID.String(), "source": object{"host": "localhost", "port": s.Dev.Ports["imaps"], "username": alice.Address, "password": alice.Password, "insecure_skip_verify": true}})
	box := "/mailboxes/" + alice.ID.String()
	paths = []string{
		"/", "/domains", "/domains/" + s.Dev.Domain.ID.String(), "/mailboxes", "/mailboxes/new", "/mailboxes?deleted=1", box, box + "/setup", box + "/access", long, long + "/files", "/aliases", "/aliases/" + alias,
		"/migrations", "/migrations/new", "/migrations/many", "/migrations/" + migration, "/messages", "/messages?direction=received&mailbox=" + alice.Address, "/messages/" + message,
		"/received/" + alice.ID.String() + "/" + got["id"].(string), "/threads/order-42", "/templates", "/templates/new", "/templates/" + template, "/templates/" + template + "/versions",
		"/templates/" + template + "/versions/1", "/templates/" + template + "/test", "/webhooks", "/webhooks/new", "/webhooks/" + hook, "/webhooks/" + hook + "/edit", "/keys", "/keys/new", "/suppressions", "/limits",
		"/sandbox", "/sandbox/" + caught, "/people", "/activity", "/profile", "/profile/factor", "/docs", "/docs/search?q=webhook", "/docs/guides/quickstart", "/docs/guides/moving-in", "/docs/api/payloads", "/nowhere",
	}
	if delivery != "" {
		paths = append(paths, "/webhooks/"+hook+"/deliveries/"+delivery)
	}
	return paths
}

// Every page has its own title and one heading, and fits a narrow phone, a tablet and a desktop
// screen. The Tab key moves through it in reading order, with a visible focus.
func TestEveryPage(t *testing.T) {
	s := servertest.Start(t)
	paths := furnish(t, s)
	b := browse(t, s)
	b.signIn(s)
	titles := map[string]string{}
	for i, path := range paths {
		b.do(chromedp.EmulateViewport(1440, 900))
		b.open(path)
		title := script[string](b, `document.title`)
		if other, taken := titles[title]; taken {
			t.Errorf("%s and %s are both called %q", path, other, title)
		}
		titles[title] = path
		if n := script[int](b, `document.querySelectorAll("h1").length`); n != 1 {
			t.Errorf("%s has %d first headings", path, n)
		}
		if n := script[int](b, `[...document.querySelectorAll('form[method="post"]')].filter(f => !f.elements.made_for?.value).length`); n > 0 {
			t.Errorf("%d forms of %s do not say whom they are for", n, path)
		}
		if found := script[string](b, `[...document.querySelectorAll("[tabindex]")].filter(e => e.tabIndex > 0).map(e => e.outerHTML).join("\n") +
			[...document.querySelectorAll("main *")].filter(e => e.children.length === 0 && /^\s*[{\[]"/.test(e.textContent) && !e.closest("pre, code, textarea")).map(e => e.outerHTML).join("\n")`); found != "" {
			t.Errorf("%s has an order of its own, or JSON as it is:\n%s", path, found)
		}
		if found := script[string](b, `[...document.querySelectorAll(".badge")].filter(e => getComputedStyle(e).whiteSpace !== "nowrap").map(e => e.outerHTML).join("\n")`); found != "" {
			t.Errorf("%s may break states within a word:\n%s", path, found)
		}
		for _, width := range []int64{360, 768, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				b.do(colours(scheme), chromedp.EmulateViewport(width, 900))
				if scheme == "light" && script[bool](b, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
					t.Errorf("%s is wider than %d pixels: %s", path, width, script[string](b, `[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.parentElement.closest(".scroll, pre, .tabs, .ticks")).slice(0, 3).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
				}
				if shows != "" {
					png := run(b, chromedp.FullScreenshot(100))
					name := strconv.Itoa(1000 + i)[1:] + strings.NewReplacer("/", "-", "?", "-", "=", "-", "&", "-").Replace(path) + "." + strconv.FormatInt(width, 10) + "." + scheme + ".png"
					if err := os.WriteFile(filepath.Join(shows, name), png, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	b.do(colours("light"), chromedp.EmulateViewport(1440, 900))
	for _, path := range []string{"/messages", "/mailboxes/new", "/domains/" + s.Dev.Domain.ID.String()} {
		b.open(path)
		script[string](b, `document.activeElement.blur(); ""`)
		for i := range 40 {
			b.do(chromedp.KeyEvent("\t"))
			where := script[string](b, `(() => {
				const e = document.activeElement, s = getComputedStyle(e);
				if (e === document.body) return "over";
				if (s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 2) return "the focus is not seen on " + e.outerHTML.slice(0, 200);
				if (window.before && !(window.before.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)) return "the focus goes back to " + e.outerHTML.slice(0, 200);
				window.before = e;
				return "";
			})()`)
			if where == "over" {
				break
			}
			if where != "" {
				t.Errorf("%s, step %d: %s", path, i, where)
			}
		}
	}
}
