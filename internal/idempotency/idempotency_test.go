// SPDX-License-Identifier: Apache-2.0

package idempotency_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/secret"
)

var (
	one   = sha256.Sum256([]byte("one"))
	other = sha256.Sum256([]byte("other"))
)

func key(t *testing.T) *secret.Key {
	t.Helper()
	k, err := secret.ParseKey(strings.Repeat("7", 64))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func claim(t *testing.T, k *idempotency.Keys, account db.ID, path, key string) *idempotency.Claim {
	t.Helper()
	c, err := k.Claim(account, "key:1", path, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func commit(t *testing.T, d *db.DB, c *idempotency.Claim, sum [sha256.Size]byte, answer string) error {
	t.Helper()
	return d.Write(t.Context(), 1, &db.Mutation{Guard: func(b *db.Batch) { c.StoreResponse(b, sum, []byte(answer)) }})
}

// A response is found by account, path, key and body, for a day.
func TestStored(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		k := idempotency.New(d, key(t), func() time.Time { return now })
		c := claim(t, k, 1, "/send", "ключ ☃")
		if got, err := c.LoadResponse(t.Context(), one); got != nil || err != nil {
			t.Fatalf("%q %v", got, err)
		}
		if err := commit(t, d, c, one, "answer"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Claim(1, "key:1", "/send", "ключ ☃"); !fault.Is(err, fault.Conflict) {
			t.Errorf("running: %v", err)
		}
		c.Release()
		c.Release()
		for _, foreign := range []*idempotency.Claim{claim(t, k, 2, "/send", "ключ ☃"), claim(t, k, 1, "/batch", "ключ ☃"), claim(t, k, 1, "/send", "ключ")} {
			if got, err := foreign.LoadResponse(t.Context(), one); got != nil || err != nil {
				t.Errorf("another's: %q %v", got, err)
			}
			foreign.Release()
		}
		c = claim(t, k, 1, "/send", "ключ ☃")
		if got, err := c.LoadResponse(t.Context(), one); string(got) != "answer" || err != nil {
			t.Errorf("%q %v", got, err)
		}
		var f *fault.Error
		if got, err := c.LoadResponse(t.Context(), other); got != nil || !errors.As(err, &f) || f.Code != "idempotency_key_reused" {
			t.Errorf("another body: %q %v", got, err)
		}
		if err := commit(t, d, c, one, "again"); !errors.Is(err, idempotency.ErrKeyUsed) {
			t.Errorf("stored twice: %v", err)
		}

		now = now.Add(idempotency.TTL)
		if got, err := c.LoadResponse(t.Context(), other); got != nil || err != nil {
			t.Errorf("a day later: %q %v", got, err)
		}
		if err := commit(t, d, c, other, "later"); err != nil {
			t.Errorf("a day later: %v", err)
		}
		if got, err := c.LoadResponse(t.Context(), other); string(got) != "later" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	})
}

func TestKeys(t *testing.T) {
	k := idempotency.New(nil, nil, time.Now)
	for _, good := range []string{"x", strings.Repeat("ä", idempotency.MaxKeyLength), "a b", `"quoted"`} {
		claim(t, k, 1, "/", good).Release()
	}
	for _, bad := range []string{"", strings.Repeat("x", idempotency.MaxKeyLength+1), "a\tb", "a\x00", "\xff", "\u202e", "a\r\nb"} {
		if _, err := k.Claim(1, "key:1", "/", bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// If many nodes execute the same request, one commits, and all others find its response.
func TestRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range 50 {
			c := claim(t, idempotency.New(d, key(t), time.Now), 1, "/send", "key") // another node
			all.Go(func() {
				err := commit(t, d, c, one, fmt.Sprint(i))
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, idempotency.ErrKeyUsed):
					t.Error(err)
				}
				if got, err := c.LoadResponse(t.Context(), one); len(got) == 0 || err != nil {
					t.Errorf("%q %v", got, err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%d commits", won.Load())
		}
	})
}

func TestPrune(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		k := idempotency.New(d, key(t), func() time.Time { return now })
		const n = 1201
		err := d.Write(t.Context(), 1, &db.Mutation{Guard: func(b *db.Batch) {
			for i := range n {
				claim(t, k, 1, "/", fmt.Sprint(i)).StoreResponse(b, one, []byte("x"))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		if err := commit(t, d, claim(t, k, 1, "/", "young"), one, "x"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(idempotency.TTL - time.Second)
		if deleted, err := k.Prune(t.Context()); deleted != n || err != nil {
			t.Errorf("%d, %v", deleted, err)
		}
		if deleted, err := k.Prune(t.Context()); deleted != 0 || err != nil {
			t.Errorf("%d, %v", deleted, err)
		}
	})
}

var (
	renew = db.SQL(`UPDATE idempotency SET sum = $2, expires_at = $3 WHERE key = $1`)
)

// A key that is used again after a day stays, even if the old one is being pruned
// at that moment. Otherwise the next request would take effect again.
func TestPruneSparesTheRenewed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		k := idempotency.New(d, key(t), func() time.Time { return now })
		c := claim(t, k, 1, "/send", "key")
		if err := commit(t, d, c, one, "old"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(idempotency.TTL)
		pruned := make(chan error, 1)
		err := d.Tx(t.Context(), func(tx *db.Tx) error {
			// This is the update of StoreResponse for an expired response.
			if _, err := tx.Exec(t.Context(), renew.With("key", other[:], db.Micros(now.Add(idempotency.TTL)))); err != nil {
				return err
			}
			go func() {
				_, err := k.Prune(t.Context())
				pruned <- err
			}()
			return dbtest.AwaitBlocked(t.Context(), d, tx, "DELETE%")
		})
		if err := errors.Join(err, <-pruned); err != nil {
			t.Fatal(err)
		}
		if got, err := c.LoadResponse(t.Context(), other); string(got) != "old" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	})
}

// Each principal has its own keys: the response of one is not returned to another, and causes no
// conflict.
func TestKeysOfPrincipals(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		k := idempotency.New(d, key(t), time.Now)
		first, err := k.Claim(1, idempotency.APIKeyPrincipal(7), "/send", "invoice-1")
		if err != nil {
			t.Fatal(err)
		}
		defer first.Release()
		if err := commit(t, d, first, one, "first"); err != nil {
			t.Fatal(err)
		}
		second, err := k.Claim(1, idempotency.APIKeyPrincipal(8), "/send", "invoice-1")
		if err != nil {
			t.Fatalf("while another's request is running: %v", err)
		}
		defer second.Release()
		for _, sum := range [][sha256.Size]byte{one, other} {
			if got, err := second.LoadResponse(t.Context(), sum); got != nil || err != nil {
				t.Errorf("another principal gets %q, %v", got, err)
			}
		}
		if err := commit(t, d, second, other, "second"); err != nil {
			t.Fatal(err)
		}
		if got, err := second.LoadResponse(t.Context(), other); string(got) != "second" || err != nil {
			t.Errorf("%q %v", got, err)
		}
		if got, err := first.LoadResponse(t.Context(), one); string(got) != "first" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	})
}
