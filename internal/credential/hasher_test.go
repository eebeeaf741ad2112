// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// A hash made by the argon2 reference program: "password", salt "somesalt".
const known = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"

// cheap returns a hash with the minimum cost, so that tests are fast.
func cheap(password string) string {
	h := hash{memory: 8, time: 1, threads: 1, salt: []byte("somesalt")}
	h.sum = h.derive(password, sumSize)
	return h.String()
}

type testHasher struct {
	*Hasher
	t      *testing.T
	now    time.Time
	paused time.Duration // only without concurrency
}

func newTestHasher(t *testing.T) *testHasher {
	h := &testHasher{Hasher: NewHasher(), t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	h.Now = func() time.Time { return h.now }
	h.Sleep = func(_ context.Context, d time.Duration) error { h.paused += d; return nil }
	h.dummy = cheap("that nobody has")
	return h
}

// hashed runs f, and checks the number of hashes.
func (h *testHasher) hashed(want int64, f func()) {
	h.t.Helper()
	before := h.HashCount()
	f()
	if n := h.HashCount() - before; n != want {
		h.t.Fatalf("cost %d hashes, want %d", n, want)
	}
}

// verify checks a password of a credential whose password is "right".
func (h *testHasher) verify(id int64, password string, want bool) {
	h.t.Helper()
	if ok, err := h.Verify(h.t.Context(), Requester{}, id, cheap("right"), password); err != nil || ok != want {
		h.t.Fatalf("%v, %v, want %v", ok, err, want)
	}
}

func TestHashAndVerify(t *testing.T) {
	h, ctx := NewHasher(), t.Context()
	phc, err := h.Hash(ctx, Requester{}, "Passw0rd!ü")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(phc, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("stored as %s", phc)
	}
	for password, want := range map[string]bool{
		"Passw0rd!ü": true, "Passw0rd!u\u0308": true, "Passw0rd!u": false, "": false, strings.Repeat("x", 1<<20): false,
	} {
		if ok, err := h.Verify(ctx, Requester{}, 1, phc, password); err != nil || ok != want {
			t.Errorf("%.12q: %v, %v", password, ok, err)
		}
	}
	if ok, err := h.Verify(ctx, Requester{}, 2, known, "password"); err != nil || !ok {
		t.Errorf("another program's hash: %v, %v", ok, err)
	}
	if again, _ := h.Hash(ctx, Requester{}, "Passw0rd!ü"); again == phc {
		t.Error("the salt repeats")
	}
}

// A repeated password, right or wrong, needs no hash, even for an address that does not exist.
func TestResultsAreRemembered(t *testing.T) {
	h := newTestHasher(t)
	refuse := func() {
		t.Helper()
		if err := h.VerifyDummy(t.Context(), Requester{Target: "nobody@demo.test"}, "wrong"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		h.hashed(3, func() { h.verify(1, "right", true); h.verify(1, "wrong", false); refuse() })
		h.hashed(0, func() {
			for range 100 {
				h.verify(1, "right", true)
				h.verify(1, "wrong", false)
				refuse()
			}
		})
		h.now = h.now.Add(wrongTTL)
		h.hashed(2, func() { h.verify(1, "right", true); h.verify(1, "wrong", false); refuse() })
		h.now = h.now.Add(rightTTL)
	}
	h.hashed(1, func() { h.verify(2, "right", true) })
	h.hashed(1, func() { h.verify(2, "wrong", false) })
	h.hashed(1, func() { h.verify(2, "wrong ", false) })
	h.hashed(0, func() { h.verify(2, strings.Repeat("x", MaxLength+1), false) })
	h.hashed(1, func() { _ = h.VerifyDummy(t.Context(), Requester{Target: "other@demo.test"}, "wrong") })
}

// A wrong password is cached for the network that sent it, so that response times don't reveal what
// others have tried. Only a repetition is delayed.
func TestWrongPasswordsAreOfTheirNetwork(t *testing.T) {
	h, phc := newTestHasher(t), cheap("right")
	verify := func(network, password string, want bool) {
		t.Helper()
		if ok, err := h.Verify(t.Context(), from(network, "192.0.2.0/24", "ann@demo.test"), 1, phc, password); err != nil || ok != want {
			t.Fatal(ok, err)
		}
	}
	for _, network := range []string{"192.0.2.1/32", "192.0.2.2/32"} {
		h.hashed(1, func() { verify(network, "wrong", false) })
	}
	h.hashed(1, func() { verify("192.0.2.1/32", "right", true); verify("192.0.2.2/32", "right", true) })
	if h.paused != 0 {
		t.Errorf("waited %s", h.paused)
	}
	h.hashed(0, func() { verify("192.0.2.1/32", "wrong", false) })
	if h.paused != repeatPause {
		t.Errorf("waited %s to repeat a wrong password", h.paused)
	}
}

// Results for an old password don't apply to a new one.
func TestNewPasswordCountsAtOnce(t *testing.T) {
	h := newTestHasher(t)
	h.verify(1, "right", true)
	h.verify(1, "next", false)
	for password, want := range map[string]bool{"right": false, "next": true} {
		if ok, err := h.Verify(t.Context(), Requester{}, 1, cheap("next"), password); err != nil || ok != want {
			t.Errorf("%s: %v, %v", password, ok, err)
		}
	}
}

func TestForget(t *testing.T) {
	h := newTestHasher(t)
	for id := range int64(3) {
		h.verify(id, "right", true)
		h.verify(id, "wrong", false)
	}
	h.Forget(1)
	h.Forget(99)
	h.hashed(0, func() { h.verify(0, "right", true); h.verify(2, "wrong", false) })
	h.hashed(2, func() { h.verify(1, "right", true); h.verify(1, "wrong", false) })
	h.ForgetAll()
	if h.right.subjects.Len()+h.wrong.subjects.Len() != 0 {
		t.Error("did not forget all")
	}
	h.hashed(2, func() { h.verify(0, "right", true); h.verify(0, "wrong", false) })
}

func TestMemoryIsBounded(t *testing.T) {
	h := newTestHasher(t)
	h.right.subjects.Max, h.wrong.subjects.Max = 3, 3
	for id := range int64(10) {
		h.verify(id, "right", true)
		h.verify(0, "right", true)
	}
	if n := h.right.subjects.Len(); n != 3 {
		t.Errorf("%d credentials kept", n)
	}
	// The most recently used ones stay, and wrong passwords never push out a right one.
	guess := func(id int64, i int) { h.verify(id, fmt.Sprint("wrong ", i), false) }
	for i := range 1000 {
		guess(9, i)
		guess(int64(i), i)
		_ = h.VerifyDummy(t.Context(), Requester{Target: fmt.Sprint(i, "@demo.test")}, "wrong")
	}
	h.hashed(0, func() { h.verify(0, "right", true); h.verify(9, "right", true) })
	h.hashed(1, func() { h.verify(7, "right", true) })
	// The cache keeps the last passwords of a credential, as many as the login limiter allows.
	h.hashed(0, func() {
		for i := 1000 - maxWrongPerSubject; i < 1000; i++ {
			guess(9, i)
		}
	})
	h.hashed(1, func() { guess(9, 1000-maxWrongPerSubject-1) })
	if n := h.wrong.subjects.Len(); n > 3 {
		t.Errorf("wrong passwords of %d credentials kept", n)
	}
	if n := len(h.wrong.subjects.Peek(subject{id: 9}).passwords); n != maxWrongPerSubject {
		t.Errorf("%d wrong passwords of one kept", n)
	}
	// Expired entries are deleted, not only those that are pushed out.
	h.now = h.now.Add(wrongTTL)
	guess(1, 0)
	if n := h.wrong.subjects.Len(); n != 1 {
		t.Errorf("%d kept after their time", n)
	}
}

// Concurrent connections with the same password cost one hash.
func TestSamePasswordAtOnce(t *testing.T) {
	h := newTestHasher(t)
	for password, want := range map[string]bool{"right": true, "wrong": false} {
		h.hashed(1, func() {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { h.verify(1, password, want) })
			}
			wg.Wait()
		})
	}
}

// If the first request fails for its own reason, another one takes over.
func TestAnotherTakesOver(t *testing.T) {
	h := newTestHasher(t)
	h.slots = newSlots(1)
	held, err := h.Acquire(t.Context(), Requester{})
	if err != nil {
		t.Fatal(err)
	}
	phc := cheap("right")
	c := h.newAttempt(subject{id: 1}, Requester{}, phc, "right")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	ahead, first := h.startVerification(c)
	if !first {
		t.Fatal("somebody was first")
	}
	go func() {
		stored, _ := parsePHC(phc)
		ahead.ok, ahead.err = h.compute(ctx, Requester{}, stored, "right")
		h.finishVerification(c, ahead)
		left <- ahead.err
	}()
	var all sync.WaitGroup
	h.hashed(1, func() {
		for range 10 {
			all.Go(func() { h.verify(1, "right", true) })
		}
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		held()
		all.Wait()
	})
	if len(h.running) != 0 {
		t.Error("a verification stays under way")
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	h := newTestHasher(t)
	h.slots = newSlots(1)
	if _, err := h.Acquire(t.Context(), Requester{}); err != nil {
		t.Fatal(err)
	}
	h.startVerification(h.newAttempt(subject{id: 2}, Requester{}, cheap("right"), "x")) // this verification never ends
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Hash(ctx, Requester{}, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Hash: %v", err)
	}
	for id := range int64(3) {
		if _, err := h.Verify(ctx, Requester{}, id, cheap("right"), "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("Verify: %v", err)
		}
	}
	if err := h.VerifyDummy(ctx, Requester{}, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Refuse: %v", err)
	}
}

// 500 clients of one network try passwords at once: as many wait as the queue allows, the others
// are rejected at once. A client from another network gets its result.
func TestFloodOfWrongPasswords(t *testing.T) {
	h := newTestHasher(t)
	h.slots = newSlots(1)
	held, err := h.Acquire(t.Context(), Requester{})
	if err != nil {
		t.Fatal(err)
	}
	var flood sync.WaitGroup
	var refused atomic.Int64
	phc := cheap("right")
	const clients = 500
	for i := range clients {
		flood.Go(func() {
			by := from("192.0.2.1/32", "192.0.2.0/24", fmt.Sprintf("a%d@demo.test", i))
			ok, err := h.Verify(t.Context(), by, int64(i), phc, "wrong")
			if fault.Is(err, fault.RateLimited) {
				refused.Add(1)
			} else if ok || err != nil {
				t.Error(ok, err)
			}
		})
	}
	// The queue is now full for that network: its clients are rejected at once.
	for lineOf(h) != maxGroupQueue || refused.Load() != clients-maxGroupQueue {
		runtime.Gosched()
	}
	var others sync.WaitGroup
	others.Go(func() {
		ok, err := h.Verify(t.Context(), from("198.51.100.1/32", "198.51.100.0/24", "ann@demo.test"), 1000, phc, "right")
		if err != nil || !ok {
			t.Error(ok, err)
		}
	})
	others.Go(func() {
		if _, err := h.Hash(t.Context(), Requester{Target: "account 1"}, "new"); err != nil {
			t.Error(err)
		}
	})
	for waiting := 0; waiting != maxGroupQueue+2; {
		waiting = lineOf(h)
	}
	held()
	others.Wait()
	flood.Wait()
	if n := h.HashCount(); n != maxGroupQueue+2 {
		t.Errorf("%d hashes", n)
	}
}

func lineOf(h *testHasher) int {
	h.slots.mu.Lock()
	defer h.slots.mu.Unlock()
	return len(h.slots.queue)
}

var hostile = []string{
	"", "$", "$$$$$", "plain",
	strings.Replace(known, "argon2id", "argon2i", 1),
	strings.Replace(known, "v=19", "v=16", 1),
	strings.Replace(known, "m=65536", "m=4194304", 1),
	strings.Replace(known, "m=65536", "m=4294967296", 1),
	strings.Replace(known, "m=65536", "m=7", 1),
	strings.Replace(known, "m=65536", "m=-1", 1),
	strings.Replace(known, "t=2", "t=1000000", 1),
	strings.Replace(known, "t=2", "t=0", 1),
	strings.Replace(known, "p=1", "p=255", 1),
	strings.Replace(known, "p=1", "p=0", 1),
	strings.Replace(known, "t=2,p=1", "p=1,t=2", 1),
	strings.Replace(known, "c29tZXNhbHQ", "", 1),
	strings.Replace(known, "c29tZXNhbHQ", "!!", 1),
	known[:strings.LastIndex(known, "$")+1],
	known[:strings.LastIndex(known, "$")+5],
	known + "$",
	known + strings.Repeat("A", 1000),
}

func TestDamagedHashes(t *testing.T) {
	h := NewHasher()
	for _, phc := range hostile {
		if ok, err := h.Verify(t.Context(), Requester{}, 1, phc, "password"); ok || err == nil {
			t.Errorf("%.80q was taken", phc)
		}
	}
}

func FuzzParsePHC(f *testing.F) {
	for _, s := range append(hostile, known) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parsePHC(s)
		if err != nil {
			return
		}
		if h.memory > maxMemory || h.time > maxTime || h.threads > maxThreads || h.memory == 0 || h.time == 0 || h.threads == 0 {
			t.Fatalf("out of bounds: %q", s)
		}
		if _, err := parsePHC(h.String()); err != nil {
			t.Fatalf("%q does not parse again: %v", s, err)
		}
	})
}

func BenchmarkHash(b *testing.B) {
	h := NewHasher()
	for b.Loop() {
		if _, err := h.Hash(b.Context(), Requester{}, "Passw0rd!"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRemembered(b *testing.B) {
	h, phc := NewHasher(), cheap("right")
	for b.Loop() {
		if ok, _ := h.Verify(b.Context(), Requester{}, 1, phc, "right"); !ok {
			b.Fatal("refused")
		}
	}
}
