// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/web"
)

const (
	aSend  = `{"from_email":"alice@demo.test","to":["delivered@simulator.test"],"subject":"x","text":"y"}`
	aBatch = `{"messages":[` + aSend + `,` + aSend + `]}`
)

// keyed posts a body below /outbound with an Idempotency-Key.
func keyed(t *testing.T, s *servertest.Server, path, key string, body io.Reader) servertest.Response {
	t.Helper()
	return call(t, s, "POST", "/api/v1/outbound"+path, map[string]string{"Content-Type": "application/json", "Idempotency-Key": key}, body)
}

func messages(t *testing.T, s *servertest.Server) int {
	t.Helper()
	return len(ids(t, s.API("GET", "/outbound/messages?limit=100", nil)))
}

// A repeated request with the same key gets the same response, byte for byte, and has no effect.
func TestIdempotency(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		sent := 0
		for _, c := range []struct {
			path, body, other string
			messages          int
		}{
			{"/send", aSend, strings.Replace(aSend, "y", "z", 1), 1},
			{"/batch", aBatch, strings.Replace(aBatch, "y", "z", 1), 2},
		} {
			first := keyed(t, s, c.path, "ключ 1", newReader(c.body))
			status(t, "sending", first, 202)
			if first.Header.Get("Idempotency-Replayed") != "" {
				t.Error("the first answer is a replay")
			}
			again := keyed(t, s, c.path, "ключ 1", newReader(c.body))
			if again.Status != 202 || !bytes.Equal(again.Body, first.Body) || again.Header.Get("Idempotency-Replayed") != "true" ||
				again.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s again: %d %v %s, first %s", c.path, again.Status, again.Header, again.Body, first.Body)
			}
			refused(t, "another body", keyed(t, s, c.path, "ключ 1", newReader(c.other)), 422, "idempotency_key_reused")
			refused(t, "a faulty other body", keyed(t, s, c.path, "ключ 1", newReader(`{}`)), 422, "idempotency_key_reused")
			status(t, "another key", keyed(t, s, c.path, "2", newReader(c.body)), 202)
			sent += 2 * c.messages
		}
		if n := messages(t, s); n != sent {
			t.Errorf("%d messages, want %d", n, sent)
		}
		foreign := stranger(t, s)
		a := call(t, s, "POST", "/api/v1/outbound/send",
			map[string]string{"Content-Type": "application/json", "Idempotency-Key": "ключ 1", "Authorization": "Bearer " + foreign}, newReader(aSend))
		refused(t, "another account", a, 403, "sender_not_allowed")
	})
}

// Rejections are not stored: the corrected request may use the same key.
func TestIdempotencyOfRefusals(t *testing.T) {
	s := servertest.Start(t)
	faulty := strings.Replace(aSend, `"y"`, `""`, 1)
	for range 2 {
		refused(t, "a fault", keyed(t, s, "/send", "k", newReader(faulty)), 422, "validation_failed", "text text_or_html_required")
	}
	refused(t, "no JSON", keyed(t, s, "/send", "k", newReader(`{`)), 400, "invalid_json")
	refused(t, "a foreign sender", keyed(t, s, "/send", "k", newReader(strings.Replace(aSend, "demo.test", "rival.test", 1))), 403, "sender_not_allowed")
	status(t, "mended", keyed(t, s, "/send", "k", newReader(aSend)), 202)
	// A batch without accepted messages has a stored response, too.
	nothing := `{"partial":true,"messages":[` + faulty + `]}`
	first := keyed(t, s, "/batch", "k", newReader(nothing))
	status(t, "a batch of nothing", first, 202)
	if again := keyed(t, s, "/batch", "k", newReader(nothing)); !bytes.Equal(again.Body, first.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	for what, key := range map[string]string{"an empty key": "", "a long key": strings.Repeat("x", 257)} {
		refused(t, what, keyed(t, s, "/send", key, newReader(faulty)), 422, "validation_failed", "Idempotency-Key invalid_idempotency_key", "text text_or_html_required")
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.Dev.BaseURL+"/api/v1/outbound/send", strings.NewReader(aSend))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + s.Dev.APIKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {"a", "b"}}
	refused(t, "two keys", do(t, r), 422, "validation_failed", "Idempotency-Key given_twice")
	if n := messages(t, s); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func do(t *testing.T, r *http.Request) servertest.Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Response{Status: resp.StatusCode, Header: resp.Header, Body: text}
}

// While a request is being received, another one with its key must wait.
func TestIdempotencyInFlight(t *testing.T) {
	s := servertest.Start(t)
	body, slow := io.Pipe()
	done := make(chan servertest.Response)
	go func() { done <- keyed(t, s, "/send", "k", body) }()
	text, err := io.ReadAll(sendBody("delivered@simulator.test", 20<<20))
	if err != nil {
		t.Fatal(err)
	}
	// More than the socket buffers hold: once it is written, the service is reading.
	if _, err := slow.Write(text[:len(text)-10]); err != nil {
		t.Fatal(err)
	}
	a := keyed(t, s, "/send", "k", bytes.NewReader(text))
	refused(t, "in flight", a, 409, "idempotency_in_flight")
	if a.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: %q", a.Header.Get("Retry-After"))
	}
	status(t, "another key", keyed(t, s, "/send", "k2", newReader(aSend)), 202)
	if _, err := slow.Write(text[len(text)-10:]); err != nil {
		t.Fatal(err)
	}
	_ = slow.Close()
	first := <-done
	status(t, "the first", first, 202)
	if again := keyed(t, s, "/send", "k", bytes.NewReader(text)); !bytes.Equal(again.Body, first.Body) {
		t.Errorf("%d %s", again.Status, again.Body)
	}
}

// Fifty identical requests at once, to one node or to many, send one message. Each response is the
// stored one, or says to wait.
func TestIdempotencyRace(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		nodes := []string{s.Dev.BaseURL}
		for range 4 {
			// A separate node as far as keys are concerned: it shares only the database with the
			// others.
			node := httptest.NewServer((&api.API{
				Services: web.Services{
					Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes, Outbox: s.Outbox, Events: s.Events, Limits: s.Limits, Log: slog.New(slog.DiscardHandler),
				},
				IdempotencyKeys: idempotency.New(s.DB, secretKey(t, s), time.Now),
			}).Handler())
			defer node.Close()
			nodes = append(nodes, node.URL)
		}
		before := messages(t, s)
		for round, c := range []struct {
			path, body string
			nodes      []string
			messages   int
		}{{"/send", aSend, nodes[:1], 1}, {"/send", aSend, nodes, 1}, {"/batch", aBatch, nodes, 2}} {
			var mu sync.Mutex
			answers := map[string]int{}
			var all sync.WaitGroup
			begin := make(chan struct{})
			for i := range 50 {
				r, err := http.NewRequestWithContext(t.Context(), "POST", c.nodes[i%len(c.nodes)]+"/api/v1/outbound"+c.path, strings.NewReader(c.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header = http.Header{"Authorization": {"Bearer " + s.Dev.APIKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {fmt.Sprint("race ", round)}}
				all.Go(func() {
					<-begin
					a := do(t, r)
					mu.Lock()
					defer mu.Unlock()
					switch a.Status {
					case 202:
						answers[string(a.Body)]++
					case 409:
						refused(t, "in flight", a, 409, "idempotency_in_flight")
					default:
						t.Errorf("%d %s", a.Status, a.Body)
					}
				})
			}
			close(begin)
			all.Wait()
			after := messages(t, s)
			if len(answers) != 1 || after-before != c.messages {
				t.Errorf("round %d: %d messages, %d different answers", round, after-before, len(answers))
			}
			before = after
		}
	})
}

// Two API keys of an account that use the same Idempotency-Key make two requests: neither gets the
// other's response or is rejected because of it.
func TestIdempotencyKeysOfTwoAPIKeys(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		status(t, "with one key", keyed(t, s, "/send", "invoice-1", newReader(aSend)), 202)
		_, other := newKey(t, s, object{"name": "other", "scopes": []string{"outbound.send"}})
		for _, body := range []string{aSend, strings.Replace(aSend, "y", "z", 1)} {
			a := call(t, s, "POST", "/api/v1/outbound/send",
				map[string]string{"Content-Type": "application/json", "Idempotency-Key": "invoice-1", "Authorization": "Bearer " + other}, newReader(body))
			if body == aSend {
				status(t, "with another", a, 202)
				if a.Header.Get("Idempotency-Replayed") != "" {
					t.Error("one key got the answer of another")
				}
				continue
			}
			refused(t, "another body", a, 422, "idempotency_key_reused")
		}
		if n := messages(t, s); n != 2 {
			t.Errorf("%d messages, want 2", n)
		}
	})
}
