// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// recordEvents records bounces of the demo account in one commit, and waits until they are listed.
func recordEvents(t *testing.T, s *servertest.Server, n int, text string) {
	t.Helper()
	demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DB.Tx(t.Context(), func(tx *db.Tx) error {
		for i := range n {
			if err := s.Events.Record(t.Context(), tx, event.RecordParams{Account: demo.ID, Kind: event.Bounce, Data: object{"n": i, "text": text}}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, func() string {
		var o object
		var last object
		s.API("GET", "/events?type=bounce&limit=1", nil).Decode(t, &o)
		for _, e := range o["data"].([]any) {
			last = e.(object)["data"].(object)
		}
		if last == nil || last["n"] != float64(n-1) {
			return "not all are numbered"
		}
		return ""
	})
}

// An export has the entries of the list, in both formats.
func TestListExports(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		recordEvents(t, s, 250, "x\ny")
		for _, subject := range []string{"=1+1", "+1", "-1", "@SUM(1)", "'quoted", "one, \"two\"", "plain"} {
			status(t, "a message", s.API("POST", "/outbound/send", mail(object{"to": []string{"delivered@simulator.test"}, "subject": subject, "metadata": object{"a": []int{1}}})), 202)
			receive(t, s, object{"subject": subject})
		}
		servertest.Eventually(t, func() string {
			if got := ids(t, s.API("GET", "/outbound/messages?status=delivered", nil)); len(got) < 7 {
				return fmt.Sprint(got)
			}
			return ""
		})
		today := time.Now().UTC().Format("2006-01-02T00:00:00Z") // messages of today are counted some seconds later
		box := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/messages"
		for path, filter := range map[string]string{"/events": "type=bounce", "/outbound/messages": "status=delivered", box: "from=elsewhere.example", "/stats": "by=day&ends_at=" + today} {
			var listed []any
			for cursor := ""; ; {
				query := "?" + filter
				if path != "/stats" {
					query += "&order=asc" + cursor
				}
				page := into(t, s.API("GET", path+query, nil))
				listed = append(listed, page["data"].([]any)...)
				if page["has_more"] != true {
					break
				}
				cursor = "&after=" + page["next_cursor"].(string)
			}
			if len(listed) < 7 {
				t.Errorf("%s: only %d", path, len(listed))
			}
			a := s.API("GET", path+"/export?"+filter, nil)
			status(t, path, a, 200)
			lines := strings.Split(strings.TrimSuffix(string(a.Body), "\n"), "\n")
			if len(lines) != len(listed) || a.Header.Get("Content-Type") != "application/x-ndjson" {
				t.Fatalf("%s: %d lines of %q for %d entries", path, len(lines), a.Header.Get("Content-Type"), len(listed))
			}
			for i, line := range lines {
				var one any
				if err := json.Unmarshal([]byte(line), &one); err != nil || fmt.Sprint(one) != fmt.Sprint(listed[i]) {
					t.Errorf("%s: line %d: %v %s, listed %v", path, i, err, line, listed[i])
				}
			}
			a = s.API("GET", path+"/export?format=csv&"+filter, nil)
			status(t, path, a, 200)
			rows, err := csv.NewReader(bytes.NewReader(a.Body)).ReadAll()
			if err != nil || len(rows) != len(listed)+1 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/csv") || bytes.Count(a.Body, []byte("\r\n")) < len(rows) {
				t.Fatalf("%s: %d rows for %d entries, %v", path, len(rows), len(listed), err)
			}
			for i, row := range rows[1:] {
				entry := listed[i].(object)
				if len(entry) != len(rows[0]) {
					t.Fatalf("%s: columns %v of %v", path, rows[0], entry)
				}
				for n, name := range rows[0] {
					cell := row[n]
					if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
						t.Errorf("%s: a spreadsheet computes %q", path, cell)
					}
					switch want := entry[name].(type) {
					case nil:
						if cell != "" {
							t.Errorf("%s %s: %q for null", path, name, cell)
						}
					case string:
						if strings.ContainsRune("=+-@'", rune((want + " ")[0])) {
							want = "'" + want
						}
						if cell != want {
							t.Errorf("%s %s: %q for %q", path, name, cell, want)
						}
					default:
						var got any
						if err := json.Unmarshal([]byte(cell), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
							t.Errorf("%s %s: %q for %v", path, name, cell, want)
						}
					}
				}
			}
		}
		down := s.API("GET", "/events/export?order=desc&type=bounce", nil)
		up := s.API("GET", "/events/export?type=bounce", nil)
		reverse := strings.Split(strings.TrimSpace(string(down.Body)), "\n")
		if slices.Reverse(reverse); strings.Join(reverse, "\n") != strings.TrimSpace(string(up.Body)) {
			t.Error("the other order has other events")
		}
		refused(t, "faults", s.API("GET", "/events/export?format=xml&created_after=x&type=y&limit=3", nil), 422, "validation_failed",
			"format unknown_value", "type unknown_value", "limit unknown_parameter", "created_after invalid_time")
		none := s.API("GET", "/events/export?format=csv&type=complaint", nil)
		if status(t, "nothing", none, 200); string(none.Body) != "id,type,timestamp,version,account_id,data\r\n" {
			t.Errorf("nothing: %q", none.Body)
		}
	})
}

// An export that fails halfway does not look whole.
func TestListExportBreaksOff(t *testing.T) {
	s := servertest.Start(t)
	const events, size = 400, 100_000 // more than the buffers of a connection hold
	recordEvents(t, s, events, strings.Repeat("x", size))
	id, key := newKey(t, s, object{"scopes": []string{"events.read"}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Dev.BaseURL+"/api/v1/events/export?type=bounce", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if _, err := io.CopyN(io.Discard, resp.Body, size); err != nil {
		t.Fatal(err)
	}
	status(t, "revoking", s.API("DELETE", "/api-keys/"+id, nil), 204)
	n, err := io.Copy(io.Discard, resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || n > events*size {
		t.Errorf("%d bytes, then %v", n, err)
	}
	var file bytes.Buffer
	if err := clientOf(t, s, s.Dev.APIKey).ExportEvents(t.Context(), client.EventFilter{Types: []string{event.Bounce}}, client.NDJSON, &file); err != nil || bytes.Count(file.Bytes(), []byte("\n")) != events {
		t.Errorf("the whole export: %d bytes, %v", file.Len(), err)
	}
}
