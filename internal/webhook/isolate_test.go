// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/webhook"
)

// ledger counts the events that a receiver accepted.
type ledger struct {
	mu   sync.Mutex
	took map[string]int
	want int
	all  chan struct{}
}

func newLedger(want int) *ledger {
	return &ledger{took: map[string]int{}, want: want, all: make(chan struct{})}
}

func (l *ledger) take(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := r.Header.Get("X-Event-ID")
	if l.took[id]++; l.took[id] == 1 && len(l.took) == l.want {
		close(l.all)
	}
}

func (l *ledger) wait(t *testing.T, who string, within time.Duration) {
	t.Helper()
	select {
	case <-l.all:
	case <-time.After(within):
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Fatalf("%s got %d of %d events", who, len(l.took), l.want)
	}
}

// memory returns the memory of the process, in MiB: the resident set, and the heap after a
// collection.
func memory(t *testing.T) (resident, heap int) {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20, int(m.HeapAlloc >> 20)
}

// Of four receivers one hangs, one responds with 500, one is slow. The fast one gets everything
// meanwhile. When the others recover, they do too.
func TestIsolation(t *testing.T) {
	needtest.Full(t, "a slow webhook")
	total := servertest.SoakSize(2000, 100_000)
	within := waitLimit + time.Duration(total)*20*time.Millisecond
	each(t, func(t *testing.T, h *fixture) {
		fast, slow, broken, hanging := newLedger(total), newLedger(total), newLedger(total), newLedger(total)
		healed := make(chan struct{})
		isHealed := func() bool {
			select {
			case <-healed:
				return true
			default:
				return false
			}
		}
		quick := listen(t, func(_ http.ResponseWriter, r request) { fast.take(r.Request) })
		lazy := listen(t, func(_ http.ResponseWriter, r request) {
			<-time.After(5 * time.Millisecond)
			slow.take(r.Request)
		})
		sick := listen(t, func(w http.ResponseWriter, r request) {
			if !isHealed() {
				w.WriteHeader(500)
				return
			}
			broken.take(r.Request)
		})
		stuck := listen(t, func(w http.ResponseWriter, r request) {
			select {
			case <-healed:
				hanging.take(r.Request)
			case <-r.Context().Done():
			}
		})
		var hooks []webhook.Webhook
		for _, r := range []*receiver{stuck, sick, lazy, quick} {
			r.got = nil // the receivers' data is not the service's memory
			w, _ := h.create(r.URL)
			hooks = append(hooks, w)
		}
		go func() { // no one else reads the outcomes
			for range h.told { //nolint:revive // they only have to go
			}
		}()
		defer close(h.told)
		defer h.stop()
		resident, heap := memory(t)
		begun := time.Now()
		for left := total; left > 0; left -= 1000 {
			h.record(event.Bounce, min(left, 1000))
		}
		fast.wait(t, "the fast one", within)
		took := time.Since(begun)
		resident2, heap2 := memory(t)
		t.Logf("the fast one: %d events in %v, %.0f/s; %d requests to the broken one, %d to the hanging one; resident %d → %d MiB, heap %d → %d MiB",
			total, took.Round(time.Millisecond), float64(total)/took.Seconds(), sick.n.Load(), stuck.n.Load(), resident, resident2, heap, heap2)
		if total > 10_000 && heap2-heap > 32 {
			t.Errorf("the heap grew by %d MiB", heap2-heap)
		}
		// A failing receiver does not get all waiting deliveries.
		if n := sick.n.Load(); n > 100+int64(took/time.Second) {
			t.Errorf("the broken one got %d requests", n)
		}
		slow.wait(t, "the slow one", within)
		close(healed)
		h.forward(time.Hour) // past every pause, and the second and third attempts
		broken.wait(t, "the broken one", within)
		hanging.wait(t, "the hanging one", within)
		for i, l := range []*ledger{fast, slow} {
			for id, n := range l.took {
				if n != 1 {
					t.Fatalf("receiver %d got %s %d times", i, id, n)
				}
			}
		}
		if w := h.hook(hooks[0].ID); w.Status != webhook.StatusEnabled {
			t.Errorf("%+v", w)
		}
	})
}

// Once a webhook is disabled, no attempt starts; running ones may finish.
func TestDisableRace(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		open := make(chan struct{})
		r := listen(t, func(w http.ResponseWriter, r request) {
			if r.n > 100 {
				<-open
			}
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 500)
		for range 100 {
			h.outcome()
		}
		disabled := webhook.StatusDisabled
		if _, err := h.hooks.Update(t.Context(), h.account, w.ID, webhook.Change{Status: &disabled}); err != nil {
			t.Fatal(err)
		}
		before := r.n.Load()
		close(open)
		h.stop() // after all started attempts have ended
		if n := r.n.Load(); n > before+20 {
			t.Errorf("%d requests before it was disabled, %d after", before, n-before)
		}
		if left := h.count(w.ID, webhook.Pending); left != 500-int(r.n.Load()) {
			t.Errorf("%d are pending after %d were sent", left, r.n.Load())
		}
	})
}

// Webhooks take turns if there are more than a node may lease.
func TestTurns(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		r := listen(t, nil)
		const hooks, events = 5, 700
		var made []webhook.Webhook
		for range hooks {
			w, _ := h.create(r.URL)
			made = append(made, w)
		}
		h.record(event.Bounce, events)
		for range hooks * events {
			h.outcome()
		}
		for _, w := range made {
			if n := h.count(w.ID, webhook.Delivered); n != events {
				t.Errorf("%d delivered", n)
			}
		}
	}, func(o *webhook.Options) { o.MaxWebhooks = 2 })
}

// An attempt that does not finish within the drain does not count.
func TestDrain(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		began := make(chan struct{}, 1)
		r := listen(t, func(_ http.ResponseWriter, r request) {
			began <- struct{}{}
			<-r.Context().Done()
		})
		w, _ := h.create(r.URL)
		h.record(event.Bounce, 1)
		<-began
		h.stop()
		list, _, err := h.hooks.Deliveries(t.Context(), h.account, w.ID, "", db.Page{})
		if err != nil || len(list) != 1 || list[0].State != webhook.Pending || list[0].Attempts != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		var free int
		if err := h.db.One(t.Context(), batcherFree.With(), &free); err != nil || free != 1 {
			t.Errorf("%d lanes are free, %v", free, err)
		}
	}, func(o *webhook.Options) { o.DrainTimeout = 10 * time.Millisecond })
}

var countState = db.SQL(`SELECT COUNT(*) FROM webhook_delivery WHERE webhook = $1 AND ($2 = '' OR state = $2)`)

func (h *fixture) count(hook db.ID, state string) (n int) {
	h.t.Helper()
	if err := h.db.One(h.t.Context(), countState.With(hook, state), &n); err != nil {
		h.t.Fatal(err)
	}
	return n
}
