// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// An application that was down continues after the last event that a webhook brought, and gets each
// later event once, while two nodes commit events, some of them late.
func TestCatchUp(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url))
		other := &event.Log{DB: s.DB, Hub: s.Hub, Now: time.Now}
		if s.DB.Engine() == db.Postgres {
			second, err := db.Open(t.Context(), db.Options{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = second.Close() })
			other.DB = second
		}
		demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		params := func(n int) event.RecordParams {
			return event.RecordParams{Account: demo.ID, Kind: event.Bounce, Data: map[string]int{"n": n}}
		}
		record := func(l *event.Log, n int) {
			if err := l.DB.Tx(t.Context(), func(tx *db.Tx) error { return l.Record(t.Context(), tx, params(n)) }); err != nil {
				t.Error(err)
			}
		}
		var down atomic.Bool
		delivered := make(chan string, 10)
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			delivered <- r.Header.Get("X-Event-ID")
		}))
		t.Cleanup(receiver.Close)
		status(t, "a webhook", s.API("POST", "/webhooks", object{"url": receiver.URL, "events": []string{"bounce"}}), 201)
		record(s.Events, 0)
		last := <-delivered
		down.Store(true)

		const each, late = 40, 2 * 40
		lateEvent, err := other.RecordStatement(params(late + 1)) // its id is older than those of all that follow
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan struct{}) // closed when the reader is past the first events
		var waiting []<-chan struct{}
		start := func(f func()) {
			done := make(chan struct{})
			waiting = append(waiting, done)
			go func() {
				defer close(done)
				f()
			}()
		}
		for i, l := range []*event.Log{s.Events, other} {
			start(func() {
				for n := range each {
					record(l, 1+i*each+n)
				}
			})
		}
		start(func() {
			<-seen
			dbtest.Exec(t, other.DB, lateEvent)
			other.WakeSequencer()
		})
		if s.DB.Engine() == db.Postgres { // on SQLite it would keep all others from writing
			start(func() {
				if err := other.DB.Tx(ctx, func(tx *db.Tx) error {
					err := other.Record(ctx, tx, params(late+2))
					<-seen
					return err
				}); err != nil {
					t.Error(err)
				}
			})
		}
		want := late + len(waiting) - 2

		c := clientOf(t, s, s.Dev.APIKey)
		filter := client.EventFilter{Types: []string{"bounce"}}
		var polled []string
		numbers := map[int]int{}
		for cursor := last; len(polled) < want; {
			page, err := c.ListEvents(t.Context(), filter, client.Paging{Limit: 7, Order: client.Ascending, After: cursor})
			if err != nil {
				t.Fatal(err)
			}
			if cursor = page.NextCursor; cursor == "" {
				t.Fatal("a page after a cursor has none")
			}
			for _, e := range page.Data {
				var d struct{ N int }
				if err := json.Unmarshal(e.Data, &d); err != nil {
					t.Fatal(err)
				}
				polled = append(polled, e.ID)
				if numbers[d.N]++; len(polled) == 10 {
					close(seen)
				}
			}
		}
		for _, done := range waiting {
			<-done
		}
		for n := 1; n <= want; n++ {
			if numbers[n] != 1 {
				t.Errorf("event %d came %d times", n, numbers[n])
			}
		}
		var listed, streamed []string
		for e, err := range c.Events(t.Context(), filter) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, e.ID)
		}
		slices.Reverse(listed)
		for e, err := range c.StreamEvents(t.Context(), filter, last) {
			if err != nil {
				t.Fatal(err)
			}
			if streamed = append(streamed, e.ID); len(streamed) == want {
				break
			}
		}
		if !slices.Equal(listed, append([]string{last}, polled...)) || !slices.Equal(streamed, polled) {
			t.Errorf("polled %v\nlisted %v\nstreamed %v", polled, listed, streamed)
		}
	})
}

// A reader whose cursor is older than the events that are kept gets an error. One that polls without
// getting events doesn't.
func TestCursorExpires(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s, s.Dev.APIKey)
		demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		record := func(kind string) {
			t.Helper()
			if err := s.DB.Tx(t.Context(), func(tx *db.Tx) error {
				return s.Events.Record(t.Context(), tx, event.RecordParams{Account: demo.ID, Kind: kind, Data: object{}})
			}); err != nil {
				t.Fatal(err)
			}
		}
		await := func(kind string, want int) (first string) {
			t.Helper()
			servertest.Eventually(t, func() string {
				got := ids(t, s.API("GET", "/events?type="+kind, nil))
				if len(got) != want {
					return kind
				}
				first = got[len(got)-1]
				return ""
			})
			return first
		}
		list := func(after string) (*client.Page[client.Event], error) {
			return c.ListEvents(t.Context(), client.EventFilter{Types: []string{event.Complaint}}, client.Paging{Order: client.Ascending, After: after})
		}
		record(event.Complaint)
		first := await(event.Complaint, 1)
		old, err := list("")
		if err != nil || len(old.Data) != 1 {
			t.Fatal(old, err)
		}
		for range 3 {
			record(event.Bounce)
		}
		await(event.Bounce, 3)
		current, err := list(old.NextCursor)
		if err != nil || len(current.Data) != 0 || current.NextCursor == old.NextCursor {
			t.Fatal(current, err)
		}
		for n := 1; n > 0; {
			if n, err = s.Events.Prune(t.Context(), time.Now().Add(time.Hour), 100); err != nil {
				t.Fatal(err)
			}
		}
		if page, err := list(current.NextCursor); err != nil || len(page.Data) != 0 {
			t.Errorf("a reader that polls: %v %v", page, err)
		}
		for _, cursor := range []string{old.NextCursor, first} {
			refused(t, "a reader that fell behind", s.API("GET", "/events?type=complaint&order=asc&after="+cursor, nil), 422, "validation_failed", "after cursor_expired")
		}
	})
}
