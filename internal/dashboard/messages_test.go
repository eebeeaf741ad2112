// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net/smtp"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// sendRequest returns a send of the demonstration account.
func sendRequest(change object) object {
	m := object{"from_email": "shop@demo.test", "from_name": "Demo Shop", "to": []string{"delivered@simulator.test"}, "subject": "Your order 42", "text": "Thank you for your order.",
		"html": `<h1>Thank you!</h1><p>Your order <b>42</b> is on its way.</p>`}
	for k, v := range change {
		m[k] = v
	}
	return m
}

// settles waits until a message has a state.
func settles(t *testing.T, s *servertest.Server, id, state string) {
	t.Helper()
	servertest.Eventually(t, func() string {
		if got := callAPI(t, s, "GET", "/outbound/messages/"+id, nil)["status"]; got != state {
			return fmt.Sprintf("message %s is %v, not %s", id, got, state)
		}
		return ""
	})
}

// Sent and received messages can be found, shown, and changed.
func TestMessagePages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/messages")
	b.reads("No message yet")
	b.looks("messages-empty")

	sent := callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"to": []string{"delivered@simulator.test", "bob@demo.test"}, "bcc": []string{"bounced@simulator.test"}, "thread_id": "order/42",
		"metadata": object{"order": object{"id": 42}, "customer": "Ann"}, "tags": []string{"receipt", "shop"},
		"attachments": []object{{"filename": "invoice.pdf", "content": base64.StdEncoding.EncodeToString([]byte("%PDF-1.7"))}}}))
	id := sent["id"].(string)
	later := callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"subject": "Tomorrow’s news", "send_at": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)}))["id"].(string)
	settles(t, s, id, "bounced")
	callAPI(t, s, "POST", "/sandbox/inbound", object{"from": "Bob Baker <bob@outside.test>", "to": []string{"alice@demo.test"}, "subject": "Re: Your order 42", "text": "When does it come?", "in_reply_to": sent["message_id"],
		"check_results": object{"spf": "pass", "dkim": "pass", "dmarc": "fail", "spam": "ham"}, "attachments": []object{{"filename": "photo.png", "content": "iVBORw0KGgo="}}})

	b.open("/messages")
	b.reads("Tomorrow’s news")
	b.looks("messages")
	b.open("/messages?recipient=bob%40demo.test&status=bounced&metadata=customer%3DAnn&tag=shop%2C+x")
	b.reads("Your order 42")
	if strings.Contains(b.text(), "Tomorrow") {
		t.Error("the search finds what it should not")
	}
	b.open("/messages?since=yesterday&recipient=%40")
	b.reads("Give a date such as")
	b.accessible()
	b.open("/messages?recipient=nobody%40demo.test")
	b.reads("Nothing was found")
	b.accessible()

	b.open("/messages/" + id)
	b.reads("invoice.pdf")
	b.reads("order.id")
	b.reads("Attempt 1: bounced")
	b.looks("message")
	b.open("/threads/order%2F42")
	b.reads("When does it come?")
	b.reads("Thank you for your order")
	b.looks("thread")

	b.open("/messages/" + later)
	b.fill("send_at", "1999-01-01T00:00")
	b.press("/messages/" + later + "/time")
	b.reads("Some fields need correcting")
	b.accessible()
	b.fill("send_at", time.Now().Add(48*time.Hour).UTC().Format("2006-01-02T15:04"))
	b.press("/messages/" + later + "/time")
	b.reads("Moved to")
	b.looks("message-scheduled")
	b.press("/messages/" + later + "/cancel")
	b.reads("Cancelled “Tomorrow’s news”.")

	waits := callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"to": []string{"deferred@simulator.test"}}))["id"].(string)
	settles(t, s, waits, "deferred")
	b.open("/messages/" + waits)
	b.press("/messages/" + waits + "/retry")
	b.reads("Tried once more to deliver")
	b.accessible()

	b.open("/messages")
	b.reads("Bob Baker")
	b.reads("Demo Shop")
	b.open("/received?mailbox=" + s.Dev.Mailboxes[0].ID.String() + "&folder=INBOX&sender=outside.test&subject=order")
	if want := "/messages?direction=received&folder=INBOX&from=outside.test&mailbox=" + s.Dev.Mailboxes[0].ID.String() + "&subject=order"; b.path() != want {
		t.Error("the former list of what was received leads to", b.path())
	}
	b.reads("Re: Your order 42")
	b.reads("All that lies in alice@demo.test")
	b.looks("received")
	b.open("/messages?direction=received&from=none.test")
	b.reads("Nothing was found")
	b.accessible()
	b.open("/messages?mailbox=alice%40elsewhere.test&direction=received&status=queued")
	b.reads("no mailbox of yours with this address")
	b.accessible()
	b.open("/messages?thread=order%2F42")
	if n := script[int](b, `document.querySelectorAll("tbody tr").length`); n != 3 { // one sent and two received
		t.Errorf("the thread has %d messages:\n%s", n, b.text())
	}
	b.open("/messages?direction=received&recipient=ALICE%40demo.test&subject=42+re:")
	arrived := script[string](b, `document.querySelector("tbody a").getAttribute("href")`)
	b.open(arrived)
	b.reads("When does it come?")
	b.reads("photo.png")
	b.reads("Nothing shows that it is from the domain that it names as its author's.")
	b.looks("arrived")
	mx, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer mx.Close() //nolint:errcheck // only a client
	if err := errors.Join(mx.Mail("eve@nowhere.invalid"), mx.Rcpt("alice@demo.test")); err != nil {
		t.Fatal(err)
	}
	w, err := mx.Data()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "From: eve@nowhere.invalid\r\nSubject: Weighed\r\n\r\nHello\r\n") // an error shows at the end
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b.open("/received?subject=weighed")
	b.open(script[string](b, `document.querySelector("tbody a").getAttribute("href")`))
	b.reads("The spam filter gave it")
	b.reads("Neither SPF nor a signature speaks for it.")
	b.reads("+0.5")
	b.accessible()

	x := newStranger(t, s)
	x.findsNothing("GET /messages/"+id, "GET /messages/"+id+"/progress", "GET /messages/"+id+"/preview", "GET /messages/"+id+"/raw", "GET /messages/"+id+"/files/0",
		"POST /messages/"+id+"/cancel", "POST /messages/"+id+"/retry", "GET "+arrived, "GET "+arrived+"/preview", "GET "+arrived+"/raw", "GET "+arrived+"/files/0",
		"GET /threads/order%2F42", "GET /messages?mailbox="+s.Dev.Mailboxes[0].ID.String())
	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	for _, path := range []string{"/messages/" + id + "/files/0", arrived + "/files/0", arrived + "/raw"} {
		status, h := owner.asks("GET", path)
		if status != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, status, h)
		}
	}
	owner.findsNothing("GET /messages/"+id+"/files/1", "GET /messages/"+id+"/files/00", "GET "+arrived+"/preview", "GET /threads/none", "GET /threads/%00", "GET /threads/%FF")
}

// Content of hostile messages is never executed.
func TestHostileMessages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	const evil = `"'><img id=evil src=x onerror="top.evil=1;parent.postMessage('evil','*')"><script id=evil>top.evil=1;parent.postMessage('evil','*')</script><svg id=evil onload="top.evil=1">{{7*7}}`
	html := `<main><p id=seen>Read me</p><script>top.evil=1;parent.postMessage('evil','*');document.title='evil'</script><img src=x onerror="parent.postMessage('evil','*')">` +
		`<a id=link href="javascript:parent.postMessage('evil','*')" target=_top>x</a><meta http-equiv=refresh content="0;url=/profile"><form action="/sign-out" method=post target=_top><input type=submit autofocus></form>` +
		`<iframe src="javascript:parent.parent.postMessage('evil','*')"></iframe><img id=cid src="cid:pixel"><img id=far src="https://tracker.invalid/pixel.png"><link rel=stylesheet href="https://tracker.invalid/a.css"></main>`
	pixel := object{"filename": evil + ".png", "content": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "content_type": "image/png", "content_id": "pixel"}
	id := callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"from_name": evil, "subject": evil, "html": html, "text": evil, "metadata": object{evil: evil}, "thread_id": "evil-thread",
		"to": []string{"alice@demo.test"}, "attachments": []object{pixel}}))["id"].(string)
	settles(t, s, id, "delivered")
	got := callAPI(t, s, "POST", "/sandbox/inbound", object{"from": `"` + strings.ReplaceAll(evil, `"`, `\"`) + `" <evil@outside.test>`, "to": []string{"bob@demo.test"}, "subject": evil, "html": html, "text": evil, "attachments": []object{pixel},
		"headers": object{"X-Evil": evil}})["recipients"].([]any)[0].(object)
	arrived := fmt.Sprintf("/received/%v/%v", got["mailbox_id"], got["id"])

	for _, path := range []string{"/messages", "/messages/" + id, "/messages?direction=received", arrived, "/threads/evil-thread", "/messages?subject=" + strings.ReplaceAll(strings.ReplaceAll(evil, "{", "%7B"), "<", "%3C")} {
		b.open(path)
		script[bool](b, `new Promise(done => { // what its frame would do is awaited
			window.heard = 0; addEventListener("message", () => window.heard++);
			const frame = document.querySelector("iframe");
			if (!frame) return done(true);
			frame.addEventListener("load", () => fetch("/static/").finally(() => done(true)));
			frame.src = frame.src;
		})`)
		if script[bool](b, `!!(window.evil || window.heard || document.querySelector("#evil") || document.title === "evil")`) {
			t.Errorf("%s runs what a stranger wrote, or has its elements", path)
		}
		if now := b.path(); !strings.HasPrefix(now, strings.SplitN(path, "?", 2)[0]) {
			t.Errorf("%s was left for %s", path, now)
		}
	}
	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	for _, path := range []string{"/messages/" + id + "/preview", arrived + "/preview"} {
		status, h := owner.asks("GET", path)
		want := "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox"
		if status != 200 || len(h.Values("Content-Security-Policy")) != 1 || h.Get("Content-Security-Policy") != want || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, status, h)
		}
		b.open(path)
		if script[bool](b, `document.title === "evil" || !document.querySelector("#cid").src.startsWith("data:image/png;base64,") || document.querySelector("#far").naturalWidth > 0`) {
			t.Errorf("%s ran a script, lacks its own image, or loaded one from elsewhere", path)
		}
	}
}

// A search with impossible values gets a response, on either engine.
func TestHostileSearches(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		for _, value := range []string{"%00", "%FF", "%F0%9F", "a%00b", "'", "%25", "_", "%0A", "-1", "9999999999999999999999", strings.Repeat("x", 5000)} {
			for _, path := range []string{
				"/messages?recipient=", "/messages?from=", "/messages?subject=", "/messages?status=", "/messages?metadata=", "/messages?metadata=a%3D", "/messages?since=", "/messages?until=", "/messages?after=",
				"/messages?direction=received&from=", "/messages?direction=received&subject=", "/messages?direction=", "/messages?direction=received&mailbox=" + s.Dev.Mailboxes[0].ID.String() + "&folder=",
				"/messages?mailbox=", "/messages?mailbox=@", "/messages?before=", "/messages?thread=", "/received?sender=",
				"/threads/", "/suppressions?find=", "/suppressions?why=", "/templates?after=", "/templates/", "/docs/search?q=", "/docs/guides/", "/docs/api/",
			} {
				if status, _ := owner.asks("GET", path+value); status >= 500 {
					t.Errorf("%s%s: %d", path, value, status)
				}
			}
		}
	})
}

// Paging through the list, forward and back, shows all sent and received messages once, by time.
func TestMessageLists(t *testing.T) {
	s := servertest.Start(t)
	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	const n = 110 // messages of each direction
	for i := range n {
		to := "alice@demo.test"
		if i%7 == 0 || i > 100 {
			to = "bob@demo.test"
		}
		callAPI(t, s, "POST", "/sandbox/inbound", object{"from": "ann@outside.test", "to": []string{to}, "subject": fmt.Sprintf("Number %03d", i), "text": "x"})
		if i%10 == 9 {
			callAPI(t, s, "POST", "/outbound/batch", object{"messages": func() (all []object) {
				for j := range 10 {
					all = append(all, sendRequest(object{"subject": fmt.Sprintf("Number %d", i-j), "to": []string{"delivered@simulator.test"}}))
				}
				return all
			}()})
		}
	}
	entries, links := regexp.MustCompile(`href="/(?:messages|received/[-0-9a-f]+)/([-0-9a-f]+)">Number`), regexp.MustCompile(`rel="(prev|next)" href="([^"]*)"`)
	walk := func(path, way string) (seen []string, last string) {
		for path != "" {
			status, _, text := owner.gets("GET", path)
			if status != 200 {
				t.Fatalf("%s: %d", path, status)
			}
			var here []string
			for _, m := range entries.FindAllStringSubmatch(text, -1) {
				here = append(here, m[1])
			}
			if len(here) > 50 {
				t.Errorf("%s has %d messages", path, len(here))
			}
			if way == "next" {
				seen = append(seen, here...)
			} else {
				seen = append(here, seen...)
			}
			last, path = path, ""
			for _, m := range links.FindAllStringSubmatch(text, -1) {
				if m[1] == way {
					path = html.UnescapeString(m[2])
				}
			}
		}
		return seen, last
	}
	today := time.Now().UTC().Format(time.DateOnly)
	for path, many := range map[string]int{
		"/messages": 2 * n, "/messages?subject=number": 2 * n, "/messages?direction=sent": n, "/messages?direction=received": n, "/messages?from=outside.test": n,
		"/messages?recipient=delivered%40simulator.test": n, "/messages?recipient=bob%40demo.test": 24, "/messages?subject=number+042": 1, "/messages?mailbox=bob%40demo.test&direction=received": 24,
		"/messages?since=" + today: 2 * n, "/messages?direction=received&until=2020-01-01": 0,
	} {
		forth, last := walk(path, "next")
		back, _ := walk(last, "prev")
		// Ids increase over time.
		want := slices.Clone(forth)
		slices.Sort(want)
		slices.Reverse(want)
		if want = slices.Compact(want); len(want) != many || !slices.Equal(forth, want) || !slices.Equal(back, want) {
			t.Errorf("%s, %d: forth %d %q\nback %d %q", path, many, len(forth), forth, len(back), back)
		}
	}
}
