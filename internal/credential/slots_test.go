// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

// from returns a requester in a network, and in a wider one, with a target address.
func from(network, wide, target string) Requester {
	return Requester{Networks: []netip.Prefix{netip.MustParsePrefix(network), netip.MustParsePrefix(wide)}, Target: target}
}

func has(w *waiter) bool {
	select {
	case <-w.ready:
		return w.err == nil
	default:
		return false
	}
}

// A requester that shares no group with a flood gets the next slot and, if it makes more requests,
// a fair share of the slots after that.
func TestFloodWaitsBehindOthers(t *testing.T) {
	ann := from("198.51.100.1/32", "198.51.100.0/24", "ann@example.com")
	for _, flood := range []struct {
		name  string
		turns int // slots of the flood between those of ann
		by    func(i int) Requester
	}{
		{"one network, one address", 1, func(int) Requester { return from("192.0.2.1/32", "192.0.2.0/24", "bob@demo.test") }},
		{"one network, many addresses", 1, func(i int) Requester {
			return from("192.0.2.1/32", "192.0.2.0/24", fmt.Sprintf("bob@%d.test", i))
		}},
		{"many networks, one address", 1, func(i int) Requester {
			a, b := i/250, i%250
			return from(fmt.Sprintf("10.%d.%d.1/32", a, b), fmt.Sprintf("10.%d.%d.0/24", a, b), "bob@demo.test")
		}},
		{"a /48, many addresses", narrowWeight, func(i int) Requester {
			return from(fmt.Sprintf("2001:db8:1:%x::/64", i), "2001:db8:1::/48", fmt.Sprintf("bob@%d.test", i))
		}},
		{"many networks, one domain", narrowWeight, func(i int) Requester {
			a, b := i/250, i%250
			return from(fmt.Sprintf("10.%d.%d.1/32", a, b), fmt.Sprintf("10.%d.%d.0/24", a, b), fmt.Sprintf("bob%d@demo.test", i))
		}},
		{"an account", 1, func(int) Requester { return Requester{Target: "account 1"} }},
	} {
		t.Run(flood.name, func(t *testing.T) {
			s := newSlots(1)
			var line []*waiter
			for i := range 500 {
				if w, err := s.enqueue(flood.by(i)); err == nil {
					line = append(line, w)
				} else if !fault.Is(err, fault.RateLimited) {
					t.Fatal(err)
				}
			}
			if len(line) < maxGroupQueue || !has(line[0]) || has(line[1]) {
				t.Fatalf("%d of the flood are in the line", len(line))
			}
			running := 0 // running requests of the flood
			for n := range 20 {
				w, err := s.enqueue(ann)
				if err != nil || has(w) {
					t.Fatal("no flood", err)
				}
				turns := 1
				for s.release(line[running]); !has(w); s.release(line[running]) {
					running++
					turns++
				}
				if n == 0 && turns > 1 || turns > flood.turns {
					t.Fatalf("her slot %d came after %d of the flood", n, turns)
				}
				s.release(w)
				if running++; !has(line[running]) {
					t.Fatalf("the flood waits for ever after %d", n)
				}
			}
		})
	}
}

// One network, or one target, holds half of the slots at most, so that others get one at once.
func TestShare(t *testing.T) {
	for _, slots := range []int{1, 2, 3, 4, 8} {
		for name, flood := range map[string]func(i int) Requester{
			"network": func(i int) Requester { return from("192.0.2.1/32", "192.0.2.0/24", fmt.Sprintf("bob%d@demo.test", i)) },
			"target": func(i int) Requester {
				return from(fmt.Sprintf("10.0.%d.1/32", i), fmt.Sprintf("10.0.%d.0/24", i), "bob@demo.test")
			},
		} {
			s := newSlots(slots)
			var running []*waiter
			for i := range 20 {
				w, err := s.enqueue(flood(i))
				if err != nil {
					t.Fatal(err)
				}
				if has(w) {
					running = append(running, w)
				}
			}
			if len(running) != max(1, slots/2) {
				t.Errorf("one %s holds %d of %d slots", name, len(running), slots)
			}
			w, err := s.enqueue(from("198.51.100.1/32", "198.51.100.0/24", "ann@demo.test"))
			if err != nil || has(w) != (slots > 1) {
				t.Errorf("beside one %s, of %d slots others get %v, %v", name, slots, has(w), err)
			}
		}
	}
}

func TestLineIsBounded(t *testing.T) {
	s := newSlots(1)
	flood := from("192.0.2.1/32", "192.0.2.0/24", "bob@demo.test")
	for range maxGroupQueue + 1 { // one of them runs
		if _, err := s.enqueue(flood); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.acquire(t.Context(), flood)
	var limited *fault.Error
	if !errors.As(err, &limited) || limited.Kind != fault.RateLimited || limited.RetryAfter <= 0 {
		t.Errorf("one more: %v", err)
	}
	for _, half := range []Requester{{Networks: flood.Networks, Target: "ann@demo.test"}, {Target: flood.Target}} {
		if _, err := s.enqueue(half); !fault.Is(err, fault.RateLimited) {
			t.Errorf("one more of %v: %v", half, err)
		}
	}
	// Cancelled requests leave no trace.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 100 {
		if _, err := s.acquire(ctx, from(fmt.Sprintf("198.51.100.%d/32", i), "198.51.100.0/24", "ann@demo.test")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if len(s.queue) != maxGroupQueue || len(s.groups) != 4 {
		t.Errorf("%d wait, of %d groups", len(s.queue), len(s.groups))
	}
}

// When the queue is full, a request of the heaviest user is dropped for a new one.
func TestFullLineDropsTheHeaviestUser(t *testing.T) {
	s := newSlots(1)
	flood := func(n int) Requester {
		return from(fmt.Sprintf("10.0.%d.%d/32", n/250, n%250), fmt.Sprintf("10.0.%d.0/24", n/250), fmt.Sprintf("bob%d@demo.test", n))
	}
	first, err := s.enqueue(flood(0))
	if err != nil {
		t.Fatal(err)
	}
	s.release(first) // so that the first group has usage
	var all []*waiter
	for i := range maxQueue + 1 {
		w, err := s.enqueue(flood(i % 30))
		if err != nil {
			t.Fatal(i, err)
		}
		all = append(all, w)
	}
	ann, err := s.enqueue(from("198.51.100.1/32", "198.51.100.0/24", "ann@example.com"))
	if err != nil || ann.err != nil || len(s.queue) != maxQueue {
		t.Fatalf("%v, %v; %d in the line", err, ann.err, len(s.queue))
	}
	dropped := 0
	for i, w := range all {
		if fault.Is(w.err, fault.RateLimited) {
			if dropped++; i%30 != 0 {
				t.Errorf("%d was dropped", i)
			}
		}
	}
	if dropped != 1 {
		t.Errorf("%d were dropped", dropped)
	}
	s.release(all[0])
	if !has(ann) {
		t.Error("the newcomer waits")
	}
}

// The memory for networks and addresses is bounded, for any number of them.
func TestGroupsAreBounded(t *testing.T) {
	s, most := newSlots(4), 0
	for i := range 50_000 {
		w, err := s.enqueue(from(fmt.Sprintf("2001:db8:%x:%x::/64", i/500, i), fmt.Sprintf("2001:db8:%x::/48", i/500), fmt.Sprintf("a%d@%d.test", i, i)))
		if err != nil || !has(w) {
			t.Fatal(i, err)
		}
		s.release(w)
		most = max(most, len(s.groups))
	}
	if most > 2*groupCount*usageHalvingInterval {
		t.Errorf("up to %d groups were kept", most)
	}
}

func TestSlotsManyAtOnce(t *testing.T) {
	const n = 4
	s := newSlots(n)
	var running, network atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%5 == 0 {
					go cancel()
				}
				by := from(fmt.Sprintf("192.0.2.%d/32", i%4), "192.0.2.0/24", fmt.Sprintf("a%d@demo.test", j%7))
				release, err := s.acquire(ctx, by)
				if err == nil {
					if running.Add(1) > n || i%4 == 0 && network.Add(1) > n/2 {
						t.Error("too many at once")
					}
					running.Add(-1)
					if i%4 == 0 {
						network.Add(-1)
					}
					release()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if s.free != n || len(s.queue) != 0 {
		t.Errorf("%d slots are free, %d wait", s.free, len(s.queue))
	}
	for key, g := range s.groups {
		if g.running != 0 || g.waiting != 0 {
			t.Errorf("%v: %+v", key, *g)
		}
	}
}

// To join the longest queue takes one pass over it, as does each grant.
func BenchmarkLongLine(b *testing.B) {
	s := newSlots(1)
	enter := func(i int) {
		by := from(fmt.Sprintf("10.0.%d.%d/32", i/250, i%250), fmt.Sprintf("10.0.%d.0/24", i/250), fmt.Sprintf("bob%d@demo.test", i))
		if _, err := s.enqueue(by); err != nil {
			b.Fatal(err)
		}
	}
	for i := range maxQueue + 1 {
		enter(i)
	}
	for b.Loop() {
		enter(maxQueue + 2)
	}
}
