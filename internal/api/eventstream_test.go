// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func clientOf(t *testing.T, s *servertest.Server, key string) *client.Client {
	t.Helper()
	c, err := client.New(s.Dev.BaseURL, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// While mail is sent, streams that break off repeatedly deliver every event once, in the order of
// the list and with identical bytes.
func TestStream(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const sends, readers = 30, 3
		c := clientOf(t, s, s.Dev.APIKey)
		var all sync.WaitGroup
		heard, bodies := make([][]string, readers), make([][]string, readers)
		for r := range readers {
			all.Go(func() {
				filter := client.EventFilter{Types: []string{"delivery_status", "bounce"}}
				for after, delivered := "0", 0; delivered < sends; {
					for e, err := range c.StreamEvents(t.Context(), filter, after) {
						if err != nil {
							t.Error(err)
							return
						}
						var d client.DeliveryStatusData
						if err := e.Decode(&d); err != nil {
							t.Error(err)
						}
						if d.Status == client.Delivered {
							delivered++
						}
						after = e.Cursor
						heard[r], bodies[r] = append(heard[r], e.ID), append(bodies[r], string(e.Body))
						if len(heard[r])%(3+r) == 0 || delivered == sends {
							break // reconnect
						}
					}
				}
			})
		}
		for i := range sends {
			if _, err := c.Send(t.Context(), &client.Send{
				FromEmail: s.Dev.Mailboxes[0].Address, To: []string{fmt.Sprintf("delivered+%d@simulator.test", i)}, Subject: "streamed", Text: "Hello.",
			}); err != nil {
				t.Fatal(err)
			}
		}
		all.Wait()
		var listed []string
		for e, err := range c.Events(t.Context(), client.EventFilter{Types: []string{"delivery_status", "bounce"}}) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, e.ID)
		}
		slices.Reverse(listed)
		for r := range readers {
			if !slices.Equal(heard[r], listed) {
				t.Errorf("reader %d heard %d events, and %d are listed", r, len(heard[r]), len(listed))
			}
			if !slices.Equal(bodies[r], bodies[0]) {
				t.Errorf("reader %d got other bytes", r)
			}
		}
	})
}

// A stream delivers only events of its account, and of its key's domain.
func TestStreamOwn(t *testing.T) {
	s := servertest.Start(t)
	key := stranger(t, s)
	own, them := clientOf(t, s, s.Dev.APIKey), clientOf(t, s, key)
	first := func(c *client.Client, f client.EventFilter) client.StreamedEvent {
		t.Helper()
		for e, err := range c.StreamEvents(t.Context(), f, "0") {
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		return client.StreamedEvent{}
	}
	mine := first(own, client.EventFilter{})
	verified(t, s, key, "stranger.test")
	if e := first(them, client.EventFilter{}); e.AccountID == mine.AccountID || !strings.Contains(string(e.Data), "stranger.test") {
		t.Errorf("a stranger's first event is %s", e.Body)
	}
	_, one := newKey(t, s, object{"name": "one", "scopes": []string{"events.read"}, "domain": "demo.test"})
	if e := first(clientOf(t, s, one), client.EventFilter{Types: []string{"mailbox_created"}}); !strings.Contains(string(e.Data), s.Dev.Domain.ID.String()) {
		t.Errorf("of one domain: %s", e.Body)
	}
	a := s.API("GET", "/events/stream?type=x&message=y&recipient=z&domain_id=1&mailbox_id=2&after=-3", nil)
	refused(t, "all that is wrong", a, 422, "validation_failed", "type unknown_value", "recipient invalid_address", "message invalid_id",
		"domain_id invalid_id", "mailbox_id invalid_id", "after invalid_cursor")
}

// stream opens a stream and returns its lines; the channel is closed at the end.
func stream(t *testing.T, s *servertest.Server, key string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Dev.BaseURL+"/api/v1/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r) //nolint:bodyclose // by the goroutine that reads it
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		defer resp.Body.Close() //nolint:errcheck // only read
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	if first := <-lines; !strings.HasPrefix(first, "id: ") {
		t.Errorf("it begins with %q", first)
	}
	return lines
}

// drained reads a stream to its end.
func drained(lines <-chan string) {
	for range lines { //nolint:revive // until it is closed
	}
}

// A stream ends with its key and does not delay the shutdown; their number is limited.
func TestStreamEnds(t *testing.T) {
	s := servertest.Start(t)
	id, key := newKey(t, s, object{"name": "one", "scopes": []string{"events.read"}})
	lines := stream(t, s, key)
	if a := s.API("DELETE", "/api-keys/"+id, nil); a.Status != 204 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	drained(lines)

	var open []<-chan string
	for range 50 {
		open = append(open, stream(t, s, s.Dev.APIKey))
	}
	a := s.API("GET", "/events/stream", nil)
	refused(t, "one too many", a, 429, "too_many_streams")
	if a.Header.Get("Retry-After") == "" {
		t.Error("it does not say when to come back")
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	for _, lines := range open {
		drained(lines)
	}
}

// A HEAD request to the stream ends after the header: it occupies neither the connection nor a
// stream slot.
func TestStreamHead(t *testing.T) {
	s := servertest.Start(t)
	box := s.Dev.Mailboxes[0]
	m, err := clientOf(t, s, s.Dev.APIKey).CreateMigration(t.Context(), client.NewMigration{MailboxID: box.ID.String(),
		Source: client.NewMigrationSource{Host: "localhost", Port: 1, TLS: "none", Username: "ann", Password: "Secret-1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/events/stream", "/migrations/" + m.ID + "/events"} {
		for range 51 {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.Dev.BaseURL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // it stays open until the end
			fmt.Fprintf(c, "HEAD /api/v1%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, s.Dev.APIKey)
			resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodHead})
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf("%s: %d %v", path, resp.StatusCode, resp.Header)
			}
		}
	}
}

// Unread data of streams counts against the memory budget like other responses. Streams without
// memory get their events later, and miss none.
func TestSlowStreams(t *testing.T) {
	s := servertest.Start(t)
	const events, slow = 12, 49
	demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		err := s.DB.Tx(t.Context(), func(tx *db.Tx) error {
			return s.Events.Record(t.Context(), tx, event.RecordParams{Account: demo.ID, Kind: event.Bounce, Data: object{"n": i, "reason": strings.Repeat("x", 1<<20-100)}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n > 0; {
		if n, err = s.Events.AssignPositions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var idle []net.Conn
	for range slow {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.Dev.BaseURL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()                              //nolint:errcheck // at the latest
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10) //nolint:forcetypeassert // it is one
		fmt.Fprintf(c, "GET /api/v1/events/stream?type=bounce&after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", s.Dev.APIKey)
		idle = append(idle, c)
	}
	list := func() (code string) {
		a := s.API("GET", "/events?type=bounce", nil)
		var p struct{ Code string }
		a.Decode(t, &p)
		return fmt.Sprint(a.Status, " ", p.Code)
	}
	servertest.Eventually(t, func() string {
		if code := list(); code != "429 too_many_large_requests" {
			return code
		}
		return ""
	})
	heard := make(chan int, events)
	go func() {
		defer close(heard)
		for e, err := range clientOf(t, s, s.Dev.APIKey).StreamEvents(t.Context(), client.EventFilter{Types: []string{event.Bounce}}, "0") {
			var d struct{ N int }
			if err != nil || e.Decode(&d) != nil {
				return
			}
			if heard <- d.N; d.N == events-1 {
				return
			}
		}
	}()
	for _, c := range idle {
		_ = c.Close()
	}
	for i := range events {
		if n, ok := <-heard; n != i || !ok {
			t.Fatalf("event %d came where %d was to come", n, i)
		}
	}
	servertest.Eventually(t, func() string {
		if code := list(); code != "200 " {
			return code
		}
		return ""
	})
}
