// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"sync"
	"testing"
	"time"
)

// cheap is the hash of "right" with the least cost, so that tests are quick.
func cheap() string {
	h := hash{memory: 8, time: 1, threads: 1, salt: []byte("somesalt")}
	h.sum = h.of("right", newSum)
	return h.String()
}

func testCache() (*Cache, *time.Time) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := NewCache(NewHasher())
	c.Now = func() time.Time { return now }
	return c, &now
}

// remembered tells whether a login would be answered without a hash.
func (c *Cache) remembered(id, generation int64, password string) bool {
	return c.known(id, c.mac(id, generation, password))
}

func verify(t *testing.T, c *Cache, id, generation int64, password string, want bool) {
	t.Helper()
	ok, err := c.Verify(t.Context(), id, generation, cheap(), password)
	if err != nil || ok != want {
		t.Fatalf("%v, %v, want %v", ok, err, want)
	}
}

func TestCacheRemembersSuccessOnly(t *testing.T) {
	c, now := testCache()
	verify(t, c, 1, 1, "wrong", false)
	if c.remembered(1, 1, "wrong") {
		t.Fatal("a wrong password is remembered")
	}
	verify(t, c, 1, 1, "right", true)
	if !c.remembered(1, 1, "right") {
		t.Fatal("a login is not remembered")
	}
	verify(t, c, 1, 1, "right", true)
	for _, other := range []struct {
		id, generation int64
		password       string
	}{{2, 1, "right"}, {1, 2, "right"}, {1, 1, "right "}, {1, 1, ""}} {
		if c.remembered(other.id, other.generation, other.password) {
			t.Errorf("%v counts as remembered", other)
		}
	}
	*now = now.Add(c.TTL)
	if c.remembered(1, 1, "right") {
		t.Error("remembered for too long")
	}
	verify(t, c, 1, 1, "right", true)
	if !c.remembered(1, 1, "right") {
		t.Error("not renewed")
	}
}

func TestCacheForgets(t *testing.T) {
	c, _ := testCache()
	for id := range int64(3) {
		verify(t, c, id, 1, "right", true)
	}
	c.Forget(1)
	c.Forget(99)
	if c.remembered(1, 1, "right") || !c.remembered(0, 1, "right") || !c.remembered(2, 1, "right") {
		t.Error("forgot another, or not this one")
	}
	c.ForgetAll()
	if c.remembered(0, 1, "right") || c.recent.Len() != 0 {
		t.Error("did not forget all")
	}
	verify(t, c, 0, 1, "right", true)
}

func TestCacheIsBounded(t *testing.T) {
	c, _ := testCache()
	c.Max = 3
	for id := range int64(10) {
		verify(t, c, id, 1, "right", true)
		verify(t, c, 0, 1, "right", true)
	}
	if len(c.byID) != 3 || c.recent.Len() != 3 {
		t.Errorf("%d and %d mailboxes kept", len(c.byID), c.recent.Len())
	}
	if !c.remembered(0, 1, "right") || !c.remembered(9, 1, "right") || c.remembered(7, 1, "right") {
		t.Error("not the longest unused was dropped")
	}
	for generation := range int64(20) {
		verify(t, c, 5, generation, "right", true)
	}
	if !c.remembered(5, 19, "right") || !c.remembered(5, 16, "right") || c.remembered(5, 15, "right") {
		t.Error("does not keep the last four logins of a mailbox")
	}
}

func TestCacheManyAtOnce(t *testing.T) {
	c, _ := testCache()
	c.Max = 5
	phc := cheap()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range int64(100) {
				if ok, err := c.Verify(t.Context(), i%7, 1, phc, "right"); err != nil || !ok {
					t.Error("a right password was refused", err)
				}
				c.Forget(i % 3)
			}
		})
	}
	wg.Wait()
}

func TestCacheDamagedHash(t *testing.T) {
	c, _ := testCache()
	if ok, err := c.Verify(t.Context(), 1, 1, "", "right"); ok || err == nil {
		t.Error("no stored hash, but an answer")
	}
}

func BenchmarkCachedVerify(b *testing.B) {
	c := NewCache(NewHasher())
	phc := cheap()
	for b.Loop() {
		if ok, _ := c.Verify(b.Context(), 1, 1, phc, "right"); !ok {
			b.Fatal("refused")
		}
	}
}
