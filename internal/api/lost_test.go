// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	loseSent = db.SQL(`DELETE FROM blob WHERE id = (SELECT blob FROM outbound_message WHERE id = $1)`)
	cutSent  = db.SQL(`UPDATE blob SET bytes = SUBSTR(bytes, 1, 10) WHERE id = (SELECT blob FROM outbound_message WHERE id = $1)`)
)

// A queued message whose data is lost fails with a clear error. It is not retried for days and does
// not delay other messages.
func TestSendLost(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		data := t.TempDir()
		s := servertest.Start(t, servertest.Database(url), servertest.Data(data))
		large := strings.Repeat("0123456789abcdef ", 10_000)
		for name, c := range map[string]struct {
			text string
			lose func(id db.ID, file string) error
		}{
			"row gone":  {"x", func(id db.ID, _ string) error { dbtest.Exec(t, s.DB, loseSent.With(id)); return nil }},
			"row cut":   {"x", func(id db.ID, _ string) error { dbtest.Exec(t, s.DB, cutSent.With(id)); return nil }},
			"file gone": {large, func(_ db.ID, file string) error { return os.Remove(file) }},
			"file cut":  {large, func(_ db.ID, file string) error { return os.Truncate(file, 100) }},
		} {
			id := post(t, s, object{"to": []string{"deferred@simulator.test"}, "text": c.text})
			becomes(t, s, id, "deferred")
			message, err := db.ParseID(id)
			if err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(data, "blobs", "??", "*"))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.lose(message, strings.Join(files, "")); err != nil {
				t.Fatal(err)
			}
			status(t, "retrying", s.API("POST", "/outbound/messages/"+id+"/retry", nil), 200)
			m := becomes(t, s, id, "failed", "delivered")
			if got := m["recipients"].([]any)[0].(object)["diagnostic"]; m["status"] != "failed" || got != "The service has lost the text of this message." {
				t.Errorf("%s: %v, the reason: %q", name, m["status"], got)
			}
			if m["content_status"] != "lost" || m["text"] != nil {
				t.Errorf("%s: its content is %v: %v", name, m["content_status"], m["text"])
			}
			for _, query := range []string{"", "?expand=messages.text"} {
				status(t, name+": its thread", s.API("GET", "/threads/"+m["thread_id"].(string)+query, nil), 200)
			}
			for _, file := range files {
				_ = os.Remove(file) // it may be gone
			}
		}
		becomes(t, s, post(t, s, object{}), "delivered")
	})
}

// Lost data is neither a conflict nor a 404: it is an internal error, and logged.
func TestLostIsNotGone(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		id := post(t, s, object{"send_at": at(time.Hour)})
		message, err := db.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, s.DB, loseSent.With(message))
		status(t, "rescheduling", s.API("PATCH", "/outbound/messages/"+id, object{"send_at": at(2 * time.Hour)}), 500)
		status(t, "reading", s.API("GET", "/outbound/messages/"+id+"/raw", nil), 500)
		status(t, "what is known of it", s.API("GET", "/outbound/messages/"+id, nil), 200)
		status(t, "cancelling", s.API("POST", "/outbound/messages/"+id+"/cancel", nil), 200)
	})
}
