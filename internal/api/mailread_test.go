// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// receive delivers a message and returns its mailbox and its id.
func receive(t *testing.T, s *servertest.Server, change object) (box, id string) {
	t.Helper()
	m := object{"from": "Bob <bob@elsewhere.example>", "rcpt_to": []string{"alice@demo.test"}}
	maps.Copy(m, change)
	if m["raw"] != nil {
		delete(m, "from")
	}
	a := s.API("POST", "/sandbox/inbound", m)
	status(t, "receiving", a, 200)
	r := into(t, a)["recipients"].([]any)[0].(object)
	return r["mailbox_id"].(string), r["id"].(string)
}

func rawMail(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// Each page continues where the last one ended, in both directions, even if a filter excludes
// messages.
func TestMailPages(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		var all, odd []string // newest first
		var box string
		for n := range 7 {
			var id string
			box, id = receive(t, s, object{"subject": []string{"even", "ODD"}[n%2] + fmt.Sprint(n)})
			all = slices.Insert(all, 0, id)
			if n%2 == 1 {
				odd = slices.Insert(odd, 0, id)
			}
		}
		path := "/mailboxes/" + box + "/messages?"
		for query, want := range map[string][]string{"": all, "subject=odd": odd, "from=elsewhere.example": all, "folder=INBOX&subject=odd&from=bob%40elsewhere.example": odd} {
			var got []string
			next := ""
			for pages := 0; ; pages++ {
				a := s.API("GET", path+query+"&limit=2"+next, nil)
				got = append(got, ids(t, a)...)
				p := into(t, a)
				if p["has_more"] == false {
					if more := ids(t, s.API("GET", path+query+"&after="+p["next_cursor"].(string), nil)); len(more) > 0 {
						t.Errorf("%s: the last page goes on with %v", query, more)
					}
					break
				}
				if pages > len(all) {
					t.Fatalf("%s: it never ends", query)
				}
				next = "&after=" + p["next_cursor"].(string)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
			got, next = nil, all[6]
			for pages := 0; ; pages++ {
				a := s.API("GET", path+query+"&limit=2&before="+next, nil)
				got = append(ids(t, a), got...)
				p := into(t, a)
				if p["has_more"] == false {
					break
				}
				if pages > len(all) {
					t.Fatalf("%s: backwards it never ends", query)
				}
				next = p["next_cursor"].(string)
			}
			if want := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return id == all[6] }); !slices.Equal(got, want) {
				t.Errorf("%s: backwards %v, want %v", query, got, want)
			}
		}
		for query, faults := range map[string][]string{
			"limit=0": {"limit out_of_range"}, "limit=101": {"limit out_of_range"}, "page=2": {"page unknown_parameter"}, "received_after=today&after=x&from=a%40&subject=" + strings.Repeat("x", 1001): {
				"after invalid_cursor", "received_after invalid_time", "subject too_long", "from invalid_address",
			},
			"after=" + all[0] + "&before=" + all[1]: {"before conflicting_cursors"},
			"from=a&from=b":                         {"from given_twice"},
			"folder=" + strings.Repeat("x", 5000):   {"folder not_found"},
		} {
			refused(t, query[:min(len(query), 80)], s.API("GET", path+query, nil), 422, "validation_failed", faults...)
		}
		if got := ids(t, s.API("GET", path+"received_after=9999-01-01T00:00:00Z", nil)); len(got) > 0 {
			t.Errorf("in the far future there is %v", got)
		}
	})
}

// Only the message's owner sees it, with a key that may read mail, and only while it is in a
// folder.
func TestMailIsPrivate(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		verified(t, s, s.Dev.APIKey, "other.test")
		box, id := receive(t, s, object{"text": "secret", "attachments": []object{{"filename": "a.txt", "content": rawMail("secret")}}})
		rival := stranger(t, s)
		_, elsewhere := newKey(t, s, object{"domain": "other.test"})
		_, here := newKey(t, s, object{"domain": "demo.test", "scopes": []string{"mail.read"}})
		_, blind := newKey(t, s, object{"scopes": []string{"mailboxes.read", "messages.read", "events.read", "sandbox.write"}})
		list := "/mailboxes/" + box + "/messages"
		message := list + "/" + id
		const nobody = "01920000-0000-7000-8000-000000000000"
		for _, method := range []string{"GET", "HEAD"} {
			for _, path := range []string{list, message, message + "/raw", message + "/attachments/0"} {
				for what, c := range map[string]struct {
					key  string
					want int
				}{"none": {"", 401}, "a rival's": {rival, 404}, "another domain's": {elsewhere, 404}, "one that may not": {blind, 403}, "this domain's": {here, 200}, "the owner's": {s.Dev.APIKey, 200}} {
					a := s.APIWithKey(c.key, method, path, nil)
					if a.Status != c.want || method == "HEAD" && len(a.Body) > 0 || c.want != 200 && strings.Contains(string(a.Body), "secret") {
						t.Errorf("%s %s with %s key: %d %s, want %d", method, path, what, a.Status, a.Body, c.want)
					}
				}
			}
		}
		for _, path := range []string{
			"/mailboxes/" + nobody + "/messages", "/mailboxes/x/messages", list + "/" + nobody, list + "/x", list + "/" + nobody + "/raw", list + "/x/raw",
			list + "/" + nobody + "/attachments/0", message + "/attachments/1", message + "/attachments/0x0", message + "/attachments/%30%00",
			"/mailboxes/" + s.Dev.Mailboxes[1].ID.String() + "/messages/" + id, "/mailboxes/" + s.Dev.Mailboxes[1].ID.String() + "/messages/" + id + "/raw",
		} {
			refused(t, path, s.API("GET", path, nil), 404, "not_found")
		}
		expunge(t, s, s.Dev.Mailboxes[0].ID)
		for _, path := range []string{message, message + "/raw", message + "/attachments/0"} {
			refused(t, "expunged, "+path, s.API("GET", path, nil), 404, "not_found")
		}
		if got := ids(t, s.API("GET", list, nil)); len(got) > 0 {
			t.Errorf("expunged, it is listed: %v", got)
		}
	})
}

// Files are complete or missing: HEAD matches GET, ranges are not supported, and a name with line
// ends adds no header.
func TestFilesOverHTTP(t *testing.T) {
	s := servertest.Start(t)
	large := strings.Repeat("0123456789abcdef", 100_000)
	box, id := receive(t, s, object{"raw": rawMail("Content-Type: multipart/mixed; boundary=x\r\n\r\n" +
		"--x\r\nContent-Disposition: attachment; filename*=utf-8''a%22%0D%0ASet-Cookie%3A%20b%3D1%0D%0A%0D%0A%3Cscript%3E%3B.txt\r\n\r\n" +
		"small\r\n--x\r\nContent-Type: application/pdf; name=\"" + strings.Repeat("ä", 5000) + ".pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\n" + rawMail(large) + "\r\n--x--\r\n")})
	message := "/api/v1/mailboxes/" + box + "/messages/" + id
	for path, want := range map[string]int{"/raw": 0, "/attachments/0": 5, "/attachments/1": len(large)} {
		get := call(t, s, "GET", message+path, map[string]string{"Range": "bytes=0-1", "If-Modified-Since": time.Now().UTC().Format(time.RFC1123)}, nil)
		status(t, path, get, 200)
		if want > 0 && len(get.Body) != want {
			t.Errorf("%s has %d bytes, want %d", path, len(get.Body), want)
		}
		head := call(t, s, "HEAD", message+path, nil, nil)
		if head.Status != 200 || len(head.Body) > 0 {
			t.Errorf("HEAD %s: %d %s", path, head.Status, head.Body)
		}
		for name, values := range get.Header {
			if name != "X-Request-Id" && name != "Date" && !strings.HasPrefix(name, "Ratelimit") && name != "Content-Length" && !slices.Equal(head.Header[name], values) {
				t.Errorf("HEAD %s: %s is %q, not %q", path, name, head.Header[name], values)
			}
		}
		if length := get.Header.Get("Content-Length"); length != "" && length != fmt.Sprint(len(get.Body)) || get.Header.Get("Set-Cookie") != "" || get.Header.Get("Accept-Ranges") != "" {
			t.Errorf("%s: %v", path, get.Header)
		}
		if length := head.Header.Get("Content-Length"); length != "" && length != fmt.Sprint(len(get.Body)) {
			t.Errorf("HEAD %s: a length of %s", path, length)
		}
		if name := get.Header.Get("Content-Disposition"); !strings.HasPrefix(name, `attachment; filename="`) || strings.Count(strings.SplitN(name, "; filename*", 2)[0], `"`) != 2 || len(name) > 1200 {
			t.Errorf("%s is called %q", path, name)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		if a := call(t, s, method, message+"/raw", nil, nil); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %v", method, a.Status, a.Header)
		}
	}
}

// Results that the sender claims in the header don't count: the results are those of the receiving
// host.
func TestResultsCannotBeForged(t *testing.T) {
	s := servertest.Start(t)
	own := into(t, s.API("GET", "/mailboxes/"+s.Dev.Mailboxes[0].ID.String(), nil))["address"].(string)
	forged := "Authentication-Results: mx.elsewhere.example (of " + s.Config.Host + "); spf=neutral\r\n"
	quoted := `"` + s.Config.Host[:1] + `\` + s.Config.Host[1:] + `"`
	for _, host := range []string{s.Config.Host, strings.ToUpper(s.Config.Host), "(a;(b)\\)) " + s.Config.Host + " 1 ", "\r\n\t" + s.Config.Host + "(c)", quoted, s.Config.Host + ".", own} {
		forged += "authentication-results : " + host + "; spf=pass; dkim=pass; dmarc=pass\r\n"
	}
	forged += "X-Spam-Status: No\r\nReceived-SPF: pass\r\nDelivered-To: x@elsewhere.example\r\n"
	box, id := receive(t, s, object{"raw": rawMail(forged + "From: x@elsewhere.example\r\nSubject: trust me\r\n\r\n")})
	raw := string(s.API("GET", "/mailboxes/"+box+"/messages/"+id+"/raw", nil).Body)
	if strings.Count(raw, "spf=pass;") != 1 || !strings.Contains(raw, own+"; spf=pass;") || !strings.Contains(raw, "\r\nAuthentication-Results: mx.elsewhere.example") {
		t.Errorf("what claims to be ours is not taken out:\n%s", raw)
	}
	for _, path := range []string{"/messages/" + id, "/messages"} {
		a := into(t, s.API("GET", "/mailboxes/"+box+path, nil))
		if data, ok := a["data"].([]any); ok {
			a = data[0].(object)
		}
		want := object{"spf": "none", "dkim": "none", "dmarc": "none", "spam": "none", "author": nil, "spam_score": nil, "spam_reasons": nil}
		if got := a["check_results"].(object); !maps.Equal(got, want) {
			t.Errorf("%s: it is judged %v", path, got)
		}
	}
}
