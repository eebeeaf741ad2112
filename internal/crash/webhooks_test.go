// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// receiver is an application that receives events.
type receiver struct {
	*httptest.Server
	t      testing.TB
	secret string
	mu     sync.Mutex
	took   map[string][]byte // bodies by event id
	more   int               // number of repeated events
	came   chan struct{}     // one value per event, unless full
}

// receive creates a receiver and its webhook. answer may be nil; it reports whether the event is
// accepted.
func (s *service) receive(answer func(http.ResponseWriter, *http.Request) bool) (r *receiver, hook string) {
	s.t.Helper()
	r = &receiver{t: s.t, took: map[string][]byte{}, came: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err == nil && (answer == nil || answer(w, in)) {
			r.take(in.Header, body)
		}
	}))
	s.t.Cleanup(r.Close)
	w, err := s.Client().CreateWebhook(s.t.Context(), client.NewWebhook{URL: r.URL, Events: []string{"delivery_status"}})
	if err != nil {
		s.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = w.Secret
	return r, w.ID
}

func (r *receiver) take(header http.Header, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := client.VerifyWebhook(header, body, r.secret); err != nil {
		r.t.Error(err)
	}
	id := header.Get("X-Event-ID")
	if former, again := r.took[id]; again {
		if r.more++; !bytes.Equal(former, body) {
			r.t.Errorf("event %s came as\n%s\nand as\n%s", id, former, body)
		}
		return
	}
	r.took[id] = body
	select {
	case r.came <- struct{}{}:
	default:
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.took)
}

// Of four receivers one hangs, one responds 500, one is slow, while the service is killed again and
// again. The fast one and the slow one get every event, with the same id and bytes each time; for
// the others every event waits.
func TestKillWebhooks(t *testing.T) {
	total, rounds, seed := servertest.SoakSize(1500, 100_000), servertest.SoakSize(3, 20), seed(t)
	dbtest.EachURL(t, func(t *testing.T, url string) {
		t.Logf("MAILSTEAD_CRASH_SEED=%d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := newService(t, t.TempDir(), url)
		s.Start()
		ending := make(chan struct{})
		defer close(ending)
		_, hanging := s.receive(func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-r.Context().Done():
			case <-ending:
			}
			return false
		})
		_, broken := s.receive(func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return false
		})
		slow, _ := s.receive(func(http.ResponseWriter, *http.Request) bool {
			<-time.After(5 * time.Millisecond)
			return true
		})
		fast, _ := s.receive(nil)

		sent, begun := 0, time.Now()
		for round := range rounds {
			sent += s.sendAndKill(total/rounds, fmt.Sprint(round), random)
			s.Start()
		}
		early := s.Memory("VmRSS")
		fast.wait("the fast one", sent)
		took := time.Since(begun)
		late := s.Memory("VmRSS")
		slow.wait("the slow one", sent)
		t.Logf("%d events, %d kills: the fast one had them after %v, %.0f/s, %d again; the slow one %d again; resident %d, then %d MiB",
			sent, 2*rounds, took.Round(time.Millisecond), float64(sent)/took.Seconds(), fast.more, slow.more, early>>20, late>>20)
		s.compare(sent, fast, slow)
		for name, id := range map[string]string{"hanging": hanging, "broken": broken} {
			s.waiting(name, id, sent)
		}
	})
}

func (r *receiver) wait(who string, want int) {
	r.t.Helper()
	for n := r.count(); n < want; n = r.count() {
		select {
		case <-r.came:
		case <-time.After(servertest.Timeout):
			r.t.Fatalf("%s got %d of %d events, and then no more", who, n, want)
		}
	}
}

// sendAndKill sends at least n messages to one recipient each. It kills the service at a random
// moment meanwhile, and again as soon as it runs. It repeats unacknowledged sends with the same
// key, so that each is accepted once.
func (s *service) sendAndKill(n int, round string, random *rand.Rand) (sent int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*servertest.Timeout)
	defer cancel()
	moment := time.Duration(random.IntN(200)) * time.Millisecond
	killed := make(chan struct{})
	strike := sync.OnceFunc(func() {
		go func() {
			defer close(killed)
			<-time.After(moment)
			s.Kill()
		}()
	})
	var unsure *client.Batch
	for i := 0; unsure == nil; i++ {
		b := batch(fmt.Sprintf("%s-%d", round, i))
		if _, err := s.Client().SendBatch(ctx, b); err != nil {
			if sent < n {
				s.t.Fatalf("after %d messages: %v", sent, err)
			}
			unsure = b
			break
		}
		if sent += len(b.Messages); sent >= n {
			strike()
		}
	}
	<-killed
	s.Start()
	if _, err := s.Client().SendBatch(ctx, unsure); err != nil {
		s.t.Fatal(err)
	}
	s.Kill() // also during the recovery from the last kill
	return sent + len(unsure.Messages)
}

func batch(key string) *client.Batch {
	b := &client.Batch{IdempotencyKey: key}
	for i := range 100 {
		b.Messages = append(b.Messages, client.Send{
			FromEmail: "alice@demo.test", To: []string{fmt.Sprintf("delivered+%d@simulator.test", i)}, Subject: key, Text: "An event, please.",
		})
	}
	return b
}

// compare compares the events accepted by receivers with the service's events.
func (s *service) compare(want int, receivers ...*receiver) {
	s.t.Helper()
	events := map[string]bool{}
	for e, err := range s.Client().Events(s.t.Context(), client.EventFilter{Types: []string{"delivery_status"}}) {
		if err != nil {
			s.t.Fatal(err)
		}
		events[e.ID] = true
	}
	if len(events) != want {
		s.t.Errorf("%d events of %d messages", len(events), want)
	}
	for _, r := range receivers {
		r.mu.Lock()
		if !maps.EqualFunc(events, r.took, func(bool, []byte) bool { return true }) {
			s.t.Errorf("a receiver took %d events, and there are %d", len(r.took), len(events))
		}
		r.mu.Unlock()
	}
}

// waiting checks that every event waits for a webhook that accepts none.
func (s *service) waiting(name, hook string, want int) {
	s.t.Helper()
	n := 0
	for d, err := range s.Client().WebhookDeliveries(s.t.Context(), hook, client.WebhookDeliveryFilter{}) {
		if err != nil {
			s.t.Fatal(err)
		}
		if n++; d.Status != "pending" {
			s.t.Errorf("the %s one: %s is %s", name, d.ID, d.Status)
		}
	}
	if n != want {
		s.t.Errorf("the %s one: %d of %d events wait", name, n, want)
	}
}
