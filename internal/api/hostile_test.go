// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// On either engine, any text in a text field is accepted or rejected, and a rejection doesn't
// repeat it.
func TestHostileText(t *testing.T) {
	const mark = "hunter2secret"
	values := map[string]string{
		"NUL": mark + "\x00", "a line": mark + "\r\nBcc: eve@x.test", "SQL": mark + "'; DROP TABLE account; --", "quotes": `"` + mark + `\"`,
		"no character": mark + "\uFFFE", "right to left": mark + "\u202E\u0000", "emoji": mark + "👩‍👩‍👧", "long": strings.Repeat(mark, 20_000),
		"a template": mark + "{{x}} %s %!d", "spaces": " \t\u00a0 ", "an escape": mark + "\x1b[31m", "a private use": mark + "\uE000",
	}
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		box := s.Dev.Mailboxes[0].ID.String()
		requests := []struct {
			method, path string
			good         object
			fields       []string
		}{
			{"POST", "/domains", object{}, []string{"name"}},
			{"POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": "x"}, []string{"domain_id", "local_part", "password", "display_name"}},
			{"PATCH", "/mailboxes/" + box, object{}, []string{"display_name", "status"}},
			{"POST", "/mailboxes/" + box + "/password", object{}, []string{"password"}},
			{"POST", "/api-keys", object{"name": "x", "scopes": []string{"domains.read"}}, []string{"name", "domain", "expires_at"}},
			{"PUT", "/mailboxes/" + box + "/vacation", object{"text": "x"}, []string{"text", "subject", "starts_at"}},
			{"POST", "/mailboxes/" + box + "/app-passwords", object{"name": "x"}, []string{"name"}},
			{"POST", "/aliases", object{"address": "y@demo.test", "targets": []string{box}}, []string{"address"}},
			{"POST", "/suppressions", object{"email": "y@x.test"}, []string{"email", "reason"}},
			{"POST", "/templates", object{"name": "x", "subject": "x", "html": "x"}, []string{"name", "alias", "subject", "html", "text"}},
			{"POST", "/outbound/send-template", object{"from_email": "alice@demo.test", "to": []string{"delivered@simulator.test"}, "variables": object{}}, []string{"template_id", "from_email", "thread_id"}},
			{"POST", "/outbound/send", mail(object{"to": []string{"delivered@simulator.test"}}), []string{"from_email", "from_name", "reply_to", "subject", "text", "html", "thread_id", "in_reply_to"}},
		}
		try := func(what, method, path string, body any) {
			a := s.API(method, path, body)
			if a.Status >= 500 || a.Status < 200 {
				t.Errorf("%s: %d %s", what, a.Status, a.Body)
			}
			if a.Status >= 400 && bytes.Contains(a.Body, []byte(mark)) {
				t.Errorf("%s: the value is repeated: %.300s", what, a.Body)
			}
		}
		for name, value := range values {
			for _, r := range requests {
				for _, field := range r.fields {
					body := maps.Clone(r.good)
					body[field] = value
					try(r.path+" "+field+": "+name, r.method, r.path, body)
				}
			}
			for _, list := range []string{"to", "cc", "bcc"} {
				try(list+": "+name, "POST", "/outbound/send", mail(object{list: []string{value, value + "@x.test", "<" + value + "@x.test>", value + " <a@x.test>"}}))
			}
			for _, field := range []string{"filename", "content", "content_type", "content_id", "disposition"} {
				file := object{"filename": "x.txt", "content": "aGk="}
				file[field] = value
				try("attachment's "+field+": "+name, "POST", "/outbound/send", mail(object{"attachments": []object{file}}))
			}
			try("header: "+name, "POST", "/outbound/send", mail(object{"headers": object{"X-A": value}}))
			try("metadata: "+name, "POST", "/outbound/send", mail(object{"metadata": object{value: value}}))
			try("alias's target: "+name, "POST", "/aliases", object{"address": "z@demo.test", "targets": []string{value, value + "@x.test"}})
			try("forwarding: "+name, "PATCH", "/mailboxes/"+box, object{"forward_to": []string{value, value + "@x.test"}})
			try("variable: "+name, "POST", "/templates", object{"name": "x", "subject": "x", "html": "x", "variables": []object{{"key": "a", "fallback": value}, {"key": value}}})
			for _, field := range []string{"scopes", "allowed_ips"} {
				try(field+": "+name, "POST", "/api-keys", object{"name": "x", field: []string{value}})
			}
		}
		for _, query := range []string{"limit=%00", "after=%00", "after=%ff", "before=" + strings.Repeat("9", 5000), "type=%00", "message=%00%ff"} {
			try("?"+query, "GET", "/events?"+query, nil)
			try("?"+query, "GET", "/domains?"+query, nil)
		}
		for _, id := range []string{"%00", "%ff", "'--", strings.Repeat("a", 4000), "ffffffff-ffff-ffff-ffff-ffffffffffff", "00000000-0000-0000-0000-000000000000"} {
			for _, path := range []string{"/domains/", "/mailboxes/", "/outbound/messages/", "/templates/"} {
				refused(t, path+id, s.API("GET", path+id, nil), 404, "not_found")
			}
			for _, path := range []string{"/templates/", "/suppressions/", "/aliases/", "/threads/", "/mailboxes/?search="} {
				try(path+id, "GET", path+id, nil)
			}
			refused(t, "deleting "+id, s.API("DELETE", "/api-keys/"+id, nil), 404, "not_found")
		}
	})
}
