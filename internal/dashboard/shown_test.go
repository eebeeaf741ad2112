// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Sender addresses whose domain imitates another one are shown with A-labels on all pages. A domain
// in its own script is shown in Unicode.
func TestLookAlikeSenders(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	callAPI(t, s, "PATCH", "/mailboxes/"+alice.ID.String(), object{"forward_to": []string{"alice@elsewhere.example"}, "keep_copy": true})
	for _, from := range []struct {
		header, want, never string
		kept                bool // its author is unclear, so it is not forwarded
	}{
		{"Billing <id@раypal.com>", "id@xn--ypal-43d9g.com", "раypal.com", false},
		{"=?utf-8?B?" + base64.StdEncoding.EncodeToString([]byte("help@аррӏе.com")) + "?= <x@atk.example>", "help@xn--80ak6aa92e.com", "аррӏе.com", true},
		{"Anna <anna@bücher.example>", "anna@bücher.example", "xn--bcher-kva", false},
	} {
		raw := "From: " + from.header + "\r\nTo: " + alice.Address + "\r\nReply-To: " + from.header + "\r\nSubject: Hello\r\n\r\nHello.\r\n"
		callAPI(t, s, "POST", "/sandbox/inbound", object{"raw": base64.StdEncoding.EncodeToString([]byte(raw)), "mail_from": "eve@elsewhere.example", "rcpt_to": []string{alice.Address}})
		m := callAPI(t, s, "GET", "/mailboxes/"+alice.ID.String()+"/messages", nil)["data"].([]any)[0].(object)
		paths := []string{"/messages?direction=received", "/received/" + alice.ID.String() + "/" + m["id"].(string)}
		if !from.kept {
			sent := callAPI(t, s, "GET", "/outbound/messages", nil)["data"].([]any)[0].(object)["id"].(string)
			settles(t, s, sent, "delivered")
			caught := callAPI(t, s, "GET", "/sandbox/outbox", nil)["data"].([]any)[0].(object)["id"].(string)
			paths = append(paths, "/messages", "/threads/"+url.PathEscape(m["thread_id"].(string)), "/messages/"+sent, "/sandbox", "/sandbox/"+caught)
		}
		v := newVisitor(t, s)
		v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		for _, path := range paths {
			status, _, text := v.ask("GET", path, nil)
			if status != 200 || !strings.Contains(text, from.want) {
				t.Errorf("%s does not show %s as %s: %d\n%s", path, from.header, from.want, status, text)
			}
			if strings.Contains(text, from.never) {
				t.Errorf("%s shows %s", path, from.never)
			}
		}
		callAPI(t, s, "DELETE", "/sandbox/outbox", nil)
	}
}
