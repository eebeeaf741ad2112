// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	netmail "net/mail"
	"net/smtp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

// verify verifies the signatures of a message through the sandbox's DNS, with a third-party
// library, and returns the fields that both cover.
func verify(t *testing.T, s *servertest.Server, text string) (covered [][]string) {
	t.Helper()
	sandbox := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.Addr("dns"))
	}}
	found, err := dkim.VerifyWithOptions(strings.NewReader(text), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		return sandbox.LookupTXT(t.Context(), name)
	}})
	if err != nil || len(found) != 2 {
		t.Fatalf("%d signatures, %v", len(found), err)
	}
	for _, v := range found {
		if v.Err != nil {
			t.Errorf("a signature: %v", v.Err)
		}
		var names []string
		for _, n := range v.HeaderKeys {
			names = append(names, strings.ToLower(n))
		}
		covered = append(covered, names)
	}
	return covered
}

// The unsubscribe options of a send are in the header, under both signatures.
func TestUnsubscribeHeader(t *testing.T) {
	for name, c := range map[string]struct {
		offer object
		list  string
	}{
		"own":    {object{"url": "https://shop.example/leave?who=1"}, "<https://shop.example/leave?who=1>"},
		"both":   {object{"url": "HTTPS://shop.example/", "mailto": "leave@shop.example"}, "<HTTPS://shop.example/>, <mailto:leave@shop.example>"},
		"hosted": {object{}, `<http://127\.0\.0\.1:\d+/u/[\w-]+>, <mailto:b-[a-z2-7]{32}@[a-z.]+\?subject=unsubscribe>`},
		"null":   {object{"url": nil, "mailto": "mailto:a+b@shop.example?subject=leave"}, `<http://127\.0\.0\.1:\d+/u/[\w-]+>, <mailto:a\+b@shop.example\?subject=leave>`},
	} {
		t.Run(name, func(t *testing.T) {
			s := servertest.Start(t)
			sent(t, s, object{"unsubscribe": c.offer})
			text := arrived(t, s)
			m, err := netmail.ReadMessage(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			want := c.list
			if name == "own" || name == "both" {
				want = regexp.QuoteMeta(c.list)
			}
			if got := m.Header["List-Unsubscribe"]; len(got) != 1 || !regexp.MustCompile("^"+want+"$").MatchString(strings.Join(strings.Fields(got[0]), " ")) {
				t.Errorf("List-Unsubscribe: %q", got)
			}
			if got := m.Header["List-Unsubscribe-Post"]; len(got) != 1 || got[0] != "List-Unsubscribe=One-Click" {
				t.Errorf("List-Unsubscribe-Post: %q", got)
			}
			for _, names := range verify(t, s, text) {
				if !slices.Contains(names, "list-unsubscribe") || !slices.Contains(names, "list-unsubscribe-post") {
					t.Errorf("a signature covers %v", names)
				}
			}
		})
	}
}

func TestUnsubscribeRules(t *testing.T) {
	s := servertest.Start(t)
	two := []string{"bob@demo.test", "carol@demo.test"}
	for _, c := range []struct {
		offer  any
		to     []string
		faults []string
	}{
		{object{}, two, []string{"unsubscribe one_recipient_required"}},
		{object{"mailto": "leave@shop.example"}, two, []string{"unsubscribe one_recipient_required"}},
		{object{"url": "http://shop.example/"}, nil, []string{"unsubscribe.url invalid_url"}},
		{object{"url": "https://"}, two, []string{"unsubscribe.url invalid_url"}},
		{object{"url": "https://u:p@shop.example/"}, nil, []string{"unsubscribe.url invalid_url"}},
		{object{"url": "https://shop.example/ü"}, nil, []string{"unsubscribe.url invalid_url"}},
		{object{"url": "https://shop.example/>\r\nBcc: x@y.example"}, nil, []string{"unsubscribe.url invalid_url"}},
		{object{"url": "https://shop.example/" + strings.Repeat("x", 900)}, nil, []string{"unsubscribe.url invalid_url"}},
		{object{"url": "javascript:alert(1)", "mailto": "x"}, nil, []string{"unsubscribe.url invalid_url", "unsubscribe.mailto invalid_address"}},
		{object{"mailto": "mailto:x@y.example?bcc=z@y.example"}, nil, []string{"unsubscribe.mailto invalid_address"}},
		{object{"mailto": "mailto:x@y.example?subject=a\r\nb"}, nil, []string{"unsubscribe.mailto invalid_address"}},
		{object{"link": "x"}, nil, []string{"unsubscribe.link unknown_field"}},
		{"yes", nil, []string{"unsubscribe wrong_type"}},
	} {
		change := object{"unsubscribe": c.offer}
		if c.to != nil {
			change["to"] = c.to
		}
		refused(t, "offering", s.API("POST", "/outbound/send", mail(change)), 422, "validation_failed", c.faults...)
	}
	sent(t, s, object{"unsubscribe": object{"url": "https://shop.example/"}, "to": two})
	sent(t, s, object{"unsubscribe": object{}, "to": []string{"bob@demo.test", "BOB@demo.test"}})
	sent(t, s, object{"unsubscribe": nil, "to": two})
}

// link sends a message with a hosted link and returns both.
func link(t *testing.T, s *servertest.Server, to string) (id, url string) {
	t.Helper()
	id, _ = sent(t, s, object{"unsubscribe": object{}, "to": []string{to}})
	number, err := db.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	// This link is equivalent to the one in the message.
	return id, s.Suppressions.UnsubscribeURL(suppression.UnsubscribeLink{Account: demo(t, s), Message: number, Address: to})
}

// requestPage requests a link like a mail client or browser does: without a key.
func requestPage(t *testing.T, method, url, media, body string) (status int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	h := resp.Header
	if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-") || h.Get("X-Robots-Tag") != "noindex, nofollow" ||
		h.Get("Content-Type") != "text/html; charset=utf-8" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" ||
		h.Get("Set-Cookie")+h.Get("WWW-Authenticate")+h.Get("Location") != "" {
		t.Errorf("%s %s: %d %v", method, url, resp.StatusCode, h)
	}
	return resp.StatusCode, h, string(all)
}

const (
	form              = "application/x-www-form-urlencoded"
	oneClickForm      = "List-Unsubscribe=One-Click"
	parts             = "multipart/form-data; boundary=x"
	oneClickMultipart = "--x\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--x--\r\n"
)

// A GET changes nothing. A POST in either form unsubscribes, once however often it is repeated. It
// stops only mail that offers to unsubscribe.
func TestUnsubscribe(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		entries := func() int {
			t.Helper()
			all, _, err := s.Suppressions.List(t.Context(), demo(t, s), everything, db.Page{})
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		id, url := link(t, s, "Bob@demo.test")
		happens(t, s, id, isDelivered)
		for _, method := range []string{"GET", "HEAD", "GET"} {
			status, _, text := requestPage(t, method, url+"?utm=x", "", "")
			if status != 200 || method == "GET" && (!strings.Contains(text, `<form method="post">`) || !strings.Contains(text, "Bob@demo.test") ||
				!strings.Contains(text, "alice@demo.test") || strings.Contains(text, "<script")) || method == "HEAD" && text != "" {
				t.Errorf("%s: %d %s", method, status, text)
			}
		}
		for _, c := range []struct {
			media, body string
			status      int
		}{
			{form, "", 400}, {form, "x=y", 400}, {form, "List-Unsubscribe=Two", 400}, {form, "%zz", 400}, {"", oneClickForm, 415}, {"application/json", "{}", 415},
			{"multipart/form-data", oneClickMultipart, 400}, {parts, "--x\r\n", 400}, {form, oneClickForm + "&x=" + strings.Repeat("x", 20_000), 413},
			{parts, oneClickMultipart[:len(oneClickMultipart)-7] + strings.Repeat("x", 20_000), 413},
		} {
			if status, _, text := requestPage(t, "POST", url, c.media, c.body); status != c.status || strings.Contains(text, "<form") {
				t.Errorf("%s %.40q: %d %s", c.media, c.body, status, text)
			}
		}
		if n := entries(); n != 0 {
			t.Fatalf("%d entries before the POST", n)
		}
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				media, body := form, oneClickForm
				if i%2 == 0 {
					media, body = parts, oneClickMultipart
				}
				if status, _, text := requestPage(t, "POST", url, media, body); status != 200 || !strings.Contains(text, "unsubscribed") {
					t.Errorf("%d %s", status, text)
				}
			})
		}
		group.Wait()
		happens(t, s, id, isDelivered+", unsubscribe link")
		if n := entries(); n != 1 {
			t.Fatalf("%d entries", n)
		}
		e, err := s.Suppressions.Get(t.Context(), demo(t, s), "bob@demo.test")
		if err != nil || e.Reason != suppression.ReasonUnsubscribe || e.Message.String() != id {
			t.Errorf("%+v, %v", e, err)
		}

		id, answer := sent(t, s, object{"unsubscribe": object{}})
		if r := recipient(answer, 0); answer["status"] != "suppressed" || r["status"] != "suppressed" || r["reason"] != "unsubscribe" {
			t.Errorf("%v", answer)
		}
		happens(t, s, id, "delivery_status suppressed unsubscribe")
		m := message(t, s, id)
		if r := recipient(m, 0); m["status"] != "suppressed" || r["attempts"] != 0.0 || fmt.Sprint(r["timeline"]) != "[]" {
			t.Errorf("%v", m)
		}
		id, _ = sent(t, s, nil)
		happens(t, s, id, isDelivered)

		// The link still works long after the message was deleted.
		gone := s.Suppressions.UnsubscribeURL(suppression.UnsubscribeLink{Account: demo(t, s), Message: s.DB.NewID(), Address: "carol@demo.test"})
		if status, _, text := requestPage(t, "GET", gone, "", ""); status != 200 || !strings.Contains(text, "this sender") {
			t.Errorf("%d %s", status, text)
		}
		if status, _, _ := requestPage(t, "POST", gone, form, oneClickForm); status != 200 || entries() != 2 {
			t.Errorf("%d, %d entries", status, entries())
		}
	})
}

// A recipient who unsubscribes before a scheduled message is due does not get it.
func TestUnsubscribeBeforeItIsDue(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		_, url := link(t, s, "bob@demo.test")
		at := time.Now().Add(3 * time.Second)
		offered, _ := sent(t, s, object{"unsubscribe": object{}, "send_at": at.Format(time.RFC3339Nano)})
		plain, _ := sent(t, s, object{"send_at": at.Format(time.RFC3339Nano)})
		if status, _, text := requestPage(t, "POST", url, form, oneClickForm); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		happens(t, s, offered, "delivery_status suppressed unsubscribe")
		happens(t, s, plain, "delivery_status queued, "+isDelivered)
	})
}

// mailto returns the unsubscribe address in a message of the service.
func mailto(t *testing.T, text string) string {
	t.Helper()
	m, err := netmail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`<mailto:(b-[a-z2-7]{32}@[a-z.]+)\?subject=unsubscribe>`).FindStringSubmatch(m.Header.Get("List-Unsubscribe"))
	if found == nil {
		t.Fatalf("List-Unsubscribe: %s", m.Header.Get("List-Unsubscribe"))
	}
	return found[1]
}

// leave writes to an unsubscribe address from outside.
func leave(t *testing.T, s *servertest.Server, to, from, fields string) error {
	t.Helper()
	c, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // what counts was answered
	if err := errors.Join(c.Mail("writer@example.test"), c.Rcpt(to)); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "From: "+from+"\r\nSubject: unsubscribe\r\n"+fields+"\r\n\r\n")
	return errors.Join(err, w.Close())
}

// Mail to the unsubscribe address has the same effect as the hosted link.
func TestUnsubscribeByMail(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		write := func(to, from, fields string) error { return leave(t, s, to, from, fields) }
		entries := func() []suppression.Entry {
			t.Helper()
			all, _, err := s.Suppressions.List(t.Context(), demo(t, s), everything, db.Page{})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		id, _ := sent(t, s, object{"unsubscribe": object{}, "to": []string{"bob@demo.test"}})
		to := mailto(t, arrived(t, s))
		happens(t, s, id, isDelivered)
		for _, forged := range []string{"b-" + strings.Repeat("a", 32), strings.Replace(to, "b-", "b-b", 1), to[:33]} {
			local, _, _ := strings.Cut(forged, "@")
			if err := write(local+"@demo.test", "bob@demo.test", ""); err == nil || !strings.HasPrefix(err.Error(), "550") {
				t.Errorf("%s: %v", forged, err)
			}
		}
		if err := write(to, "bob@demo.test", "Auto-Submitted: auto-replied\r\n"); err != nil || len(entries()) != 0 {
			t.Fatalf("an automatic reply: %v, %d entries", err, len(entries()))
		}
		for _, from := range []string{"Somebody Else <bob.private@example.test>", "bob@demo.test"} {
			if err := write(to, from, ""); err != nil {
				t.Fatal(err)
			}
		}
		if all := entries(); len(all) != 1 || all[0].Address != "bob@demo.test" || all[0].Reason != suppression.ReasonUnsubscribe {
			t.Fatalf("%+v", all)
		}
		happens(t, s, id, isDelivered+", unsubscribe email")
	})
}

// Mail from a mailbox of the service unsubscribes, too. Once the message is deleted, only mail from
// its recipient does.
func TestUnsubscribeByMailLater(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		id, _ := sent(t, s, object{"unsubscribe": object{}, "to": []string{"bob@demo.test"}})
		to := mailto(t, arrived(t, s))
		happens(t, s, id, isDelivered)
		// Pruning skips messages that the index passes have not processed. These passes skip new
		// messages.
		for pass := range 3 {
			for more := true; more; {
				var err error
				if more, err = s.Outbox.Index.RunBatch(t.Context(), pass, time.Now().Add(2*time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n, err := s.Outbox.Prune(t.Context(), time.Now().Add(time.Hour), 100); err != nil || n == 0 {
			t.Fatal(n, err)
		}
		if err := leave(t, s, to, "somebody@example.test", ""); err == nil || !strings.Contains(err.Error(), "too old") {
			t.Errorf("another author: %v", err)
		}
		leaving, _ := sent(t, s, object{"from_email": "bob@demo.test", "to": []string{to}, "subject": "unsubscribe"})
		happens(t, s, leaving, isDelivered)
		if e, err := s.Suppressions.Get(t.Context(), demo(t, s), "bob@demo.test"); err != nil || e.Reason != suppression.ReasonUnsubscribe {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// An invalid link, or a wrong method, results in an error page.
func TestBadLinks(t *testing.T) {
	s := servertest.Start(t)
	_, url := link(t, s, "bob@demo.test")
	for _, bad := range []string{url[:len(url)-1], url + "A", s.Dev.BaseURL + "/u/x", s.Dev.BaseURL + "/u/%00", s.Dev.BaseURL + "/u/" + strings.Repeat("A", 5000)} {
		for _, method := range []string{"GET", "POST"} {
			if status, _, text := requestPage(t, method, bad, form, oneClickForm); status != 404 || !strings.Contains(text, "This link does not work") || strings.Contains(text, "<form") {
				t.Errorf("%s %.80s: %d %s", method, bad, status, text)
			}
		}
	}
	for path, want := range map[string]int{"/u/": 404, "/u": 404, "/u/a/b": 404} {
		if a := call(t, s, "GET", path, nil, nil); a.Status != want {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
	if a := call(t, s, "DELETE", strings.TrimPrefix(url, s.Dev.BaseURL), nil, nil); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
}
