// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// deleteKey deletes an API key.
func deleteKey(t *testing.T, s *servertest.Server, id string) {
	t.Helper()
	status(t, "deleting a key", s.API("DELETE", "/api-keys/"+id, nil), 204)
}

// asks makes a request with a body of any length, and returns the unread response.
func asks(t *testing.T, s *servertest.Server, key, method, path, media string, body io.Reader) (code int, answer io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.Dev.BaseURL+"/api/v1"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", media)
	if body != nil {
		r.Header.Set("Expect", "100-continue") // so that the client sends nothing before the server reads
	}
	transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Hour}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode, resp.Body
}

// whenAsked is a body that calls a function when it is first read.
type whenAsked struct {
	do   func()
	body io.Reader
}

// Read implements io.Reader.
func (w *whenAsked) Read(p []byte) (int, error) {
	if w.do != nil {
		w.do()
		w.do = nil
	}
	return w.body.Read(p)
}

// If the key is deleted before the body has arrived, the request has no effect.
func TestBodyAfterTheKey(t *testing.T) {
	s := servertest.Start(t)
	box := "/mailboxes/" + s.Dev.Mailboxes[1].ID.String()
	before := into(t, s.API("GET", box, nil))["messages"]
	mail := `{"from_email": "alice@demo.test", "to": ["bob@demo.test"], "subject": "late", "text": "x"}`
	for path, c := range map[string]struct{ media, body string }{
		"/outbound/send":       {"application/json", mail},
		"/outbound/batch":      {"application/json", `{"messages": [` + mail + `]}`},
		box + "/password":      {"application/json", `{"password": "Another-Passw0rd!"}`},
		box + "/import":        {"message/rfc822", "Subject: late\r\n\r\nx\r\n"},
		"/suppressions/import": {"text/csv", "late@example.org\r\n"},
	} {
		id, key := newKey(t, s, object{})
		code, answer := asks(t, s, key, "POST", path, c.media, &whenAsked{func() { deleteKey(t, s, id) }, strings.NewReader(c.body)})
		if text, _ := io.ReadAll(answer); code != 401 || !bytes.Contains(text, []byte(`"invalid_api_key"`)) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if after := into(t, s.API("GET", box, nil))["messages"]; after != before {
		t.Errorf("%v messages, and %v before", after, before)
	}
	var sent, listed struct{ Data []any }
	s.API("GET", "/outbound/messages?subject=late", nil).Decode(t, &sent)
	s.API("GET", "/suppressions", nil).Decode(t, &listed)
	if len(sent.Data)+len(listed.Data) != 0 {
		t.Errorf("sent %v, suppressed %v", sent, listed)
	}
}

// If the key is deleted while the client still reads the response, the response breaks off.
func TestAnswerAfterTheKey(t *testing.T) {
	s := servertest.Start(t)
	box := "/mailboxes/" + s.Dev.Mailboxes[1].ID.String()
	const many = 48 // of a megabyte each: more than all buffers on the way
	large := strings.Repeat(strings.Repeat("x", 98)+"\r\n", 1<<20/100)
	for i := range many {
		code, _ := asks(t, s, s.Dev.APIKey, "POST", box+"/import", "message/rfc822", strings.NewReader(fmt.Sprintf("Subject: large %d\r\n\r\n", i)+large))
		if code != 200 {
			t.Fatalf("importing: %d", code)
		}
		if err := s.DB.Tx(t.Context(), func(tx *db.Tx) error {
			return s.Events.Record(t.Context(), tx, event.RecordParams{Account: demo(t, s), Kind: event.Bounce, Data: object{"reason": "large " + large}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n, err := 1, error(nil); n > 0; {
		if n, err = s.Events.AssignPositions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{box + "/export", box + "/export?format=maildir", "/events/stream?type=bounce&after=0"} {
		id, key := newKey(t, s, object{})
		code, answer := asks(t, s, key, "GET", path, "", nil)
		if _, err := io.ReadFull(answer, make([]byte, 1<<20)); err != nil || code != 200 {
			t.Fatalf("%s: %d %v", path, code, err)
		}
		deleteKey(t, s, id)
		if n, _ := io.Copy(io.Discard, answer); n > many<<20/2 {
			t.Errorf("%s: %d bytes more came to a key that is no more", path, n)
		}
	}
}
