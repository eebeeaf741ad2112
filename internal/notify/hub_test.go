// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func woken(sub *Subscription) bool {
	select {
	case <-sub.C:
		return true
	default:
		return false
	}
}

func TestWake(t *testing.T) {
	var h Hub
	key := Key{Folder, 7}
	a, b, other := h.Subscribe(key), h.Subscribe(key), h.Subscribe(Key{MailboxSettings, 7})
	h.Wake(key)
	h.Wake(key)
	if !woken(a) || !woken(b) {
		t.Fatal("a waiter was not woken")
	}
	if woken(a) || woken(other) {
		t.Fatal("two wakes must be one, and of this key only")
	}
	h.Receive([]Key{key, {MailboxSettings, 7}})
	if !woken(a) || !woken(b) || !woken(other) {
		t.Fatal("a wake from another node was missed")
	}
	h.WakeAll()
	if !woken(a) || !woken(b) || !woken(other) {
		t.Fatal("WakeAll missed one")
	}
	for _, sub := range []*Subscription{a, b} {
		sub.WakeOthers()
		if woken(a) != (sub == b) || woken(b) != (sub == a) || woken(other) {
			t.Fatal("WakeOthers is for all others")
		}
	}
}

func TestCloseInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}} {
		var h Hub
		key := Key{Folder, 1}
		subs := []*Subscription{h.Subscribe(key), h.Subscribe(key), h.Subscribe(key)}
		for n, i := range order {
			subs[i].Close()
			subs[i].Close()
			h.Wake(key)
			for j, sub := range subs {
				if want := !slices.Contains(order[:n+1], j); woken(sub) != want {
					t.Fatalf("order %v, after %d: subscription %d woken is not %v", order, n, j, want)
				}
			}
		}
		if n := len(h.shard(key).subs); n != 0 {
			t.Fatalf("%d keys left behind", n)
		}
	}
}

func TestForwardCoalesces(t *testing.T) {
	calls, goOn := make(chan []Key), make(chan struct{})
	h := Hub{send: func(keys []Key) {
		calls <- keys
		<-goOn
	}}
	sub := h.Subscribe(Key{Folder, 1})
	h.Wake(Key{Folder, 1})
	if !woken(sub) {
		t.Fatal("the waiter here must not wait for send")
	}
	if got := <-calls; !slices.Equal(got, []Key{{Folder, 1}}) {
		t.Fatalf("forwarded %v", got)
	}
	for range 100 {
		h.Wake(Key{Folder, 2})
		h.Wake(Key{Queue, 0})
	}
	h.Receive([]Key{{Folder, 3}})
	goOn <- struct{}{}
	got := <-calls
	slices.SortFunc(got, func(a, b Key) int { return int(a.Kind) - int(b.Kind) })
	if !slices.Equal(got, []Key{{Folder, 2}, {Queue, 0}}) {
		t.Fatalf("forwarded %v", got)
	}
	goOn <- struct{}{}
}

func TestForwardIsBounded(t *testing.T) {
	calls, goOn := make(chan int), make(chan struct{})
	h := Hub{send: func(keys []Key) {
		calls <- len(keys)
		<-goOn
	}}
	h.Wake(Key{Folder, -1})
	<-calls
	for i := range int64(maxPending + 1000) {
		h.Wake(Key{Folder, i})
	}
	goOn <- struct{}{}
	if n := <-calls; n != maxPending {
		t.Fatalf("%d keys kept, want %d", n, maxPending)
	}
	goOn <- struct{}{}
}

// No wake is lost between subscribing, reading the state and waiting.
func TestManyAtOnce(t *testing.T) {
	forwarded := make(chan []Key, 10000)
	h := Hub{send: func(keys []Key) { forwarded <- keys }}
	var wg sync.WaitGroup
	for i := range int64(8) {
		ready, done := make(chan struct{}), make(chan struct{})
		wg.Go(func() {
			sub := h.Subscribe(Key{Folder, i % 3})
			defer sub.Close()
			close(ready)
			for {
				<-sub.C
				select {
				case <-done:
					return
				default:
				}
			}
		})
		wg.Go(func() {
			<-ready
			for n := range int64(300) {
				h.Wake(Key{Folder, n % 5})
				h.Subscribe(Key{Folder, n % 5}).Close()
			}
			close(done)
			h.Wake(Key{Folder, i % 3})
		})
	}
	wg.Wait()
}

func BenchmarkWakeNobody(b *testing.B) {
	h := hubOf(b, 100_000)
	b.ResetTimer()
	var i int64
	for b.Loop() {
		i++
		h.Wake(Key{MailboxSettings, i})
	}
}

func BenchmarkWakeOne(b *testing.B) {
	h := hubOf(b, 100_000)
	b.ResetTimer()
	var i int64
	for b.Loop() {
		i++
		h.Wake(Key{Folder, i % 100_000})
	}
}

func BenchmarkSubscribe(b *testing.B) {
	h := hubOf(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		h.Subscribe(Key{Folder, 1_000_000}).Close()
	}
}

func hubOf(b *testing.B, n int) *Hub {
	b.Helper()
	h := &Hub{}
	for i := range int64(n) {
		h.Subscribe(Key{Folder, i})
	}
	return h
}

// Subscriptions are woken in order, also after others were closed.
func TestWakeInOrder(t *testing.T) {
	var h Hub
	key := Key{Folder, 7}
	var subs []*Subscription
	for range 5 {
		subs = append(subs, h.Subscribe(key))
	}
	for _, gone := range []int{2, 0, 3} { // in the middle, first, last
		subs[gone].Close()
		subs = slices.Delete(subs, gone, gone+1)
		if gone == 0 {
			subs = append(subs, h.Subscribe(key))
		}
		at := h.shard(key).subs[key]
		for i, want := range subs {
			if at != want {
				t.Errorf("after one had left, place %d is another's", i)
			}
			at = at.next
		}
	}
	h.Wake(key)
	for _, sub := range subs {
		if !woken(sub) {
			t.Error("one was not woken")
		}
		sub.Close()
	}
	if len(h.shard(key).subs) != 0 {
		t.Error("something is left of them")
	}
}
