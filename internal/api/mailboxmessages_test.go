// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Browsers don't run files that somebody sent, and no file name does harm.
func TestFilesAreHarmless(t *testing.T) {
	s := servertest.Start(t)
	kinds := []struct{ part, media, name string }{
		{"Content-Type: text/html; name=\"a.html\"", "application/octet-stream", `filename="a.html"`},
		{"Content-Type: image/svg+xml; name=\"a.svg\"", "application/octet-stream", `filename="a.svg"`},
		{"Content-Type: application/xhtml+xml", "application/octet-stream", `filename="attachment-2"`},
		{"Content-Type: text/javascript; name=a.js", "application/octet-stream", `filename="a.js"`},
		{"Content-Type: image/png; name=\"../../a\\\"b;c.png\"", "image/png", `filename="a_b;c.png"; filename*=UTF-8''a%22b%3Bc.png`},
		{"Content-Type: text/plain; charset=utf-7; name=\"a.txt\"", "text/plain", `filename="a.txt"`},
		{"Content-Type: application/pdf\r\nContent-Disposition: inline; filename*=utf-8''%E2%82%AC%0D%0Ax.pdf", "application/pdf", `filename="_x.pdf"; filename*=UTF-8''%E2%82%ACx.pdf`},
		{"Content-Type: image/png\x00\xff; name=x", "image/png", `filename="x"`},
		{"Content-Type: message/rfc822\r\n\r\nSubject: within", "message/rfc822", `filename="attachment-8"`},
	}
	var raw strings.Builder
	raw.WriteString("From: bob@elsewhere.example\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nHere they are.\r\n")
	for _, k := range kinds {
		raw.WriteString("--x\r\n" + k.part + "\r\n\r\n<script>\r\n")
	}
	raw.WriteString("--x--\r\n")
	a := s.API("POST", "/sandbox/inbound", object{"rcpt_to": []string{"alice@demo.test"}, "raw": base64.StdEncoding.EncodeToString([]byte(raw.String()))})
	status(t, "receiving", a, 200)
	var got struct {
		Recipients []struct {
			ID      string
			Mailbox string `json:"mailbox_id"`
		}
	}
	a.Decode(t, &got)
	message := "/mailboxes/" + got.Recipients[0].Mailbox + "/messages/" + got.Recipients[0].ID
	check := func(what string, a servertest.Response, media, name string) {
		t.Helper()
		status(t, what, a, 200)
		for field, want := range map[string]string{
			"Content-Type": media, "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Disposition": "attachment; " + name,
		} {
			if v := a.Header.Values(field); len(v) != 1 || v[0] != want {
				t.Errorf("%s: %s is %q, want %q", what, field, v, want)
			}
		}
	}
	for n, k := range kinds {
		a := s.API("GET", fmt.Sprintf("%s/attachments/%d", message, n), nil)
		check(k.part, a, k.media, k.name)
		if !strings.Contains(string(a.Body), "<script>") {
			t.Errorf("%s: it is %q", k.part, a.Body)
		}
	}
	a = s.API("GET", message+"/raw", nil)
	check("the whole", a, "message/rfc822", `filename="`+got.Recipients[0].ID+`.eml"`)
	if a.Header.Get("Content-Length") != fmt.Sprint(len(a.Body)) {
		t.Errorf("its length is %s", a.Header.Get("Content-Length"))
	}
	for _, n := range []string{"9", "-1", "+1", "00", "x", "99999999999999999999"} {
		refused(t, "file "+n, s.API("GET", message+"/attachments/"+n, nil), 404, "not_found")
	}
}

// Lists can show a message with any date.
func TestDatesAreShown(t *testing.T) {
	s := servertest.Start(t)
	for _, date := range []string{"Fri, 31 Dec 9999 23:59:59 -1200", "Thu, 01 Jan 1970 00:00:00 +2400"} {
		a := s.API("POST", "/sandbox/inbound", object{"rcpt_to": []string{"alice@demo.test"},
			"raw": base64.StdEncoding.EncodeToString([]byte("From: bob@elsewhere.example\r\nDate: " + date + "\r\nSubject: x\r\n\r\nx\r\n"))})
		status(t, "receiving", a, 200)
		var got struct {
			Recipients []struct {
				ID      string
				Mailbox string `json:"mailbox_id"`
			}
		}
		a.Decode(t, &got)
		box := "/mailboxes/" + got.Recipients[0].Mailbox + "/messages"
		for _, path := range []string{box, box + "/" + got.Recipients[0].ID, "/events"} {
			a := s.API("GET", path, nil)
			if a.Status != 200 || !json.Valid(a.Body) {
				t.Errorf("%s of %s: %d %q", path, date, a.Status, a.Body)
			}
		}
	}
}
