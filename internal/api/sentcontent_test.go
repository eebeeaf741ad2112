// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A sent message is shown with its content, but only to keys that may read mail.
func TestSentContent(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		_, noMail := newKey(t, s, object{"scopes": []string{"messages.read", "outbound.send"}})
		long := strings.Repeat("0123456789 äöü\n", 10_000)
		sent := s.API("POST", "/outbound/send", object{
			"from_email": "alice@demo.test", "from_name": `Ann "A" Lee, Ä`, "to": []string{"Bob <bob@demo.test>"}, "cc": []string{"carol@far.example"}, "bcc": []string{"secret@far.example"},
			"reply_to": "help@demo.test", "subject": "Größe", "text": long, "html": "<p>x</p>", "headers": object{"X-Order": "42"}, "thread_id": "order 42",
			"attachments": []object{{"filename": "a.html", "content_type": "text/html", "content": base64.StdEncoding.EncodeToString([]byte("<script>"))}},
			"send_at":     time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		})
		status(t, "sending", sent, 202)
		id := into(t, sent)["id"].(string)
		path := "/outbound/messages/" + id
		m := into(t, s.API("GET", path, nil))
		text, _ := m["text"].(string)
		files, _ := m["attachments"].([]any)
		if m["content_status"] != "available" || fmt.Sprint(m["from"]) != `[map[email:alice@demo.test name:Ann "A" Lee, Ä]]` || fmt.Sprint(m["to"]) != "[map[email:bob@demo.test name:Bob]]" ||
			fmt.Sprint(m["cc"]) != "[map[email:carol@far.example name:<nil>]]" || fmt.Sprint(m["reply_to"]) != "[map[email:help@demo.test name:<nil>]]" ||
			!strings.HasPrefix(long, text) || len(text) < 60_000 || m["text_truncated"] != true || strings.TrimSpace(fmt.Sprint(m["html"])) != "<p>x</p>" ||
			!strings.Contains(fmt.Sprint(m["headers"]), "map[name:X-Order value:42]") || len(files) != 1 || strings.Contains(fmt.Sprint(m["headers"]), "secret@") {
			t.Errorf("the message is %.2000v", m)
		}
		file := files[0].(object)
		url, _ := strings.CutPrefix(file["url"].(string), s.Dev.BaseURL+"/api/v1")
		a := s.API("GET", url, nil)
		if a.Status != 200 || string(a.Body) != "<script>" || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") || a.Header.Get("X-Content-Type-Options") != "nosniff" ||
			strings.Contains(a.Header.Get("Content-Type"), "html") {
			t.Errorf("the file: %d %v %s", a.Status, a.Header, a.Body)
		}
		refused(t, "another file", s.API("GET", path+"/attachments/1", nil), 404, "not_found")
		refused(t, "no number", s.API("GET", path+"/attachments/x", nil), 404, "not_found")
		refused(t, "another account's", s.APIWithKey(stranger(t, s), "GET", path+"/attachments/0", nil), 404, "not_found")
		for name, want := range map[string]string{"raw_url": path + "/raw", "events_url": "/events?message=" + id, "thread_url": "/threads/order%2042"} {
			if m[name] != s.Dev.BaseURL+"/api/v1"+want {
				t.Errorf("%s is %v", name, m[name])
			}
			status(t, name, s.API("GET", want, nil), 200)
		}

		m = into(t, s.APIWithKey(noMail, "GET", path, nil))
		if m["content_status"] != "omitted" || m["text"] != nil || m["html"] != nil || fmt.Sprint(m["to"], m["headers"], m["attachments"], m["reply_to"]) != "[] [] [] []" || len(m["recipients"].([]any)) != 3 {
			t.Errorf("without mail.read: %v", m)
		}
		refused(t, "a file without mail.read", s.APIWithKey(noMail, "GET", path+"/attachments/0", nil), 403, "missing_scope")
		thread := func(key, query string) servertest.Response {
			return s.APIWithKey(key, "GET", "/threads/order%2042"+query, nil)
		}
		refused(t, "texts without mail.read", thread(noMail, "?expand=messages.text"), 403, "missing_scope")
		refused(t, "an unknown expansion", thread(s.Dev.APIKey, "?expand=messages.html"), 422, "validation_failed", "expand unknown_value")
		one := into(t, thread(s.Dev.APIKey, "?expand=messages.text"))["messages"].([]any)[0].(object)
		if text, _ := one["text"].(string); !strings.HasPrefix(long, text) || len(text) < 60_000 || one["text_truncated"] != true || fmt.Sprint(one["to"]) != "[map[email:bob@demo.test name:Bob]]" ||
			fmt.Sprint(one["bcc"]) != "[map[email:secret@far.example name:<nil>]]" {
			t.Errorf("the thread's message is %.1000v", one)
		}
		if one := into(t, thread(noMail, ""))["messages"].([]any)[0].(object); one["text"] != nil || fmt.Sprint(one["to"]) != "[map[email:bob@demo.test name:Bob]]" {
			t.Errorf("without text: %v", one)
		}

		received := into(t, s.API("POST", "/sandbox/inbound", object{"from": "Bob <bob@far.example>", "to": []string{"alice@demo.test"}, "subject": "Re", "text": "an answer"}))
		status(t, "receiving", s.API("GET", "/mailboxes/"+s.Dev.Mailboxes[0].ID.String()+"/messages", nil), 200)
		if received["accepted"] != true {
			t.Fatal(received)
		}
		box := into(t, s.API("GET", "/mailboxes/"+s.Dev.Mailboxes[0].ID.String()+"/messages", nil))["data"].([]any)[0].(object)
		answer := into(t, s.API("GET", "/threads/"+fmt.Sprint(box["thread_id"])+"?expand=messages.text", nil))["messages"].([]any)[0].(object)
		if got, _ := answer["text"].(string); strings.TrimSpace(got) != "an answer" || fmt.Sprint(answer["from"]) != "[map[email:bob@far.example name:Bob]]" {
			t.Errorf("the received message is %v", answer)
		}
	})
}
