// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
)

// A complete rotation, driven only by polling.
func TestRotation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t, spfOfHost)
		w.zone = zone
		w.Domains = w.another(dnstest.Resolver(t, addr))
		node := w.another(dnstest.Resolver(t, addr)) // gets no notification
		dom := w.create(w.ann, "shop.test")
		old := w.expectKeys(dom, "rsa pending, ed25519 pending")
		w.publish(dom)
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		w.expectKeys(dom, "rsa active, ed25519 active")
		if got := w.signs(dom, node); !slices.Equal(got, []string{old[0].Selector, old[1].Selector}) {
			t.Errorf("signs with %v", got)
		}

		made, err := w.RotateKeys(t.Context(), w.ann, dom.ID, "")
		if err != nil || len(made) != 2 || made[0].Algorithm != "rsa" || made[0].State != domain.KeyPending || made[1].Record.Name == old[1].Record.Name {
			t.Fatalf("made %+v, %v", made, err)
		}
		w.expectKeys(dom, "rsa active, ed25519 active, rsa pending, ed25519 pending")
		for _, algorithm := range []string{"", "rsa", "ed25519"} {
			if _, err := w.RotateKeys(t.Context(), w.ann, dom.ID, algorithm); !fault.Is(err, fault.Conflict) {
				t.Errorf("a second rotation of %q: %v", algorithm, err)
			}
		}
		// Not seen for a long time: nothing changes, and polling continues.
		for range 40 {
			w.clock.Add(time.Hour)
			w.poll()
		}
		w.expect(w.get(dom), domain.StatusVerified, true, true)
		if got := w.signs(dom, node); !slices.Equal(got, []string{old[0].Selector, old[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		if r, ok := w.asks(dom, made[0]); !ok || r.Required || r.Status != domain.RecordFailed || !strings.Contains(r.Note, "once it was seen") {
			t.Errorf("the new key's record: %+v", r)
		}
		// One of them is seen: only it is used for its algorithm.
		w.zone.Set(made[1].Record.Name, `TXT "`+made[1].Record.Value+`"`)
		w.clock.Add(2 * time.Hour)
		w.poll()
		w.clock.Add(10 * time.Second)
		w.expectKeys(dom, "rsa active, ed25519 retiring, rsa pending, ed25519 active")
		if got := w.signs(dom, node); !slices.Equal(got, []string{old[0].Selector, made[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		w.zone.Set(made[1].Record.Name)
		w.publish(dom)
		w.clock.Add(2 * time.Hour)
		w.poll()
		w.clock.Add(10 * time.Second)
		keys := w.expectKeys(dom, "rsa retiring, ed25519 retiring, rsa active, ed25519 active")
		if got := w.signs(dom, node); !slices.Equal(got, []string{made[0].Selector, made[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		until := keys[0].PublishUntil.Sub(w.clock.Now())
		r, ok := w.asks(dom, old[0])
		if until > 7*24*time.Hour || until < 7*24*time.Hour-time.Minute || !ok || r.Required || r.Status != domain.RecordVerified ||
			!strings.Contains(r.Note, keys[0].PublishUntil.Format("2 January 2006")) {
			t.Errorf("kept for %v; %+v", until, r)
		}
		if r, ok := w.asks(dom, made[0]); !ok || !r.Required || r.Note != "" {
			t.Errorf("the new key's record: %+v", r)
		}

		// Published for a week, then destroyed.
		w.clock.Add(until - time.Minute)
		w.poll()
		w.expectKeys(dom, "rsa retiring, ed25519 retired, rsa active, ed25519 active")
		w.clock.Add(time.Minute)
		w.poll()
		keys = w.expectKeys(dom, "rsa retired, ed25519 retired, rsa active, ed25519 active")
		for _, k := range keys[:2] {
			var private []byte
			if err := w.db.One(t.Context(), privateOf.With(k.ID), &private); err != nil || len(private) != 0 {
				t.Errorf("%d bytes of the retired key are left, %v", len(private), err)
			}
			if _, ok := w.asks(dom, k); ok || k.RetiredAt.IsZero() || !k.PublishUntil.IsZero() || !strings.Contains(k.Record.Note, "Remove") {
				t.Errorf("a retired key is asked for: %+v", k)
			}
			w.zone.Set(k.Record.Name)
		}
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		if got := w.signs(dom, node); !slices.Equal(got, []string{made[0].Selector, made[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		if n := w.verifiedEvents(w.ann); n != 1 {
			t.Errorf("%d events", n)
		}
		w.clock.Add(91 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa active, ed25519 active")
	})
}

// If a rotation is reverted in the DNS, the old keys still work.
func TestRotationRolledBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t, spfOfHost)
		w.zone = zone
		w.Domains = w.another(dnstest.Resolver(t, addr))
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.check(dom)
		made, err := w.RotateKeys(t.Context(), w.ann, dom.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		w.publish(dom)
		w.check(dom)
		old := w.expectKeys(dom, "rsa retiring, ed25519 retiring, rsa active, ed25519 active")
		for _, k := range made {
			w.zone.Set(k.Record.Name)
		}
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		if got := w.signs(dom, w.Domains); !slices.Equal(got, []string{old[0].Selector, old[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
	})
}

func TestRotationSchedule(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t, spfOfHost)
		w.zone = zone
		resolver := dnstest.Resolver(t, addr)
		w.Domains = w.another(resolver)
		dom := w.create(w.ann, "shop.test")
		set := func(days int) error {
			got, err := w.Update(t.Context(), w.ann, dom.ID, domain.Change{RotationDays: &days})
			if err == nil && got.RotationDays != days {
				t.Errorf("set to %d", got.RotationDays)
			}
			return err
		}
		for days, bad := range map[int]bool{-1: true, 1: true, 6: true, 3651: true, 7: false, 3650: false, 30: false} {
			if err := set(days); fault.Is(err, fault.Invalid) != bad {
				t.Errorf("%d days: %v", days, err)
			}
		}
		if _, err := w.Update(t.Context(), w.bob, dom.ID, domain.Change{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		if err := set(30); err != nil {
			t.Fatal(err)
		}
		// A domain whose keys were never seen isn't rotated.
		w.clock.Add(40 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa pending, ed25519 pending")
		w.publish(dom)
		w.check(dom)
		w.clock.Add(29 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa active, ed25519 active")
		// Three nodes poll: one rotates.
		w.clock.Add(24 * time.Hour)
		nodes := []*domain.Domains{w.another(resolver), w.another(resolver), w.another(resolver)}
		var group sync.WaitGroup
		for _, n := range nodes {
			group.Go(func() {
				if _, err := n.Poll(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		w.expectKeys(dom, "rsa active, ed25519 active, rsa pending, ed25519 pending")
		w.publish(dom)
		w.clock.Add(time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa retiring, ed25519 retiring, rsa active, ed25519 active")
		if err := set(0); err != nil {
			t.Fatal(err)
		}
		w.clock.Add(60 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa retired, ed25519 retired, rsa active, ed25519 active")
		// After it is enabled, an overdue key is rotated soon; a customer's own key is not.
		if _, err := w.AddKey(t.Context(), w.ann, dom.ID, "mine", rsaPEM(t)); err != nil {
			t.Fatal(err)
		}
		w.publish(dom)
		w.check(dom)
		if err := set(7); err != nil {
			t.Fatal(err)
		}
		w.clock.Add(2 * time.Minute)
		w.poll()
		w.expectKeys(dom, "rsa retired, ed25519 retired, rsa retiring, ed25519 active, rsa active, ed25519 pending")
	})
}

// Of many concurrent rotations, on several nodes, one succeeds.
func TestRotationRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.check(dom)
		nodes := []*domain.Domains{w.Domains, w.another(nil), w.another(nil)}
		mine := rsaPEM(t)
		var done atomic.Int32
		var group sync.WaitGroup
		for i := range 9 {
			group.Go(func() {
				var err error
				if n := nodes[i%3]; i == 8 {
					_, err = n.AddKey(t.Context(), w.ann, dom.ID, "mine", mine)
				} else {
					_, err = n.RotateKeys(t.Context(), w.ann, dom.ID, "rsa")
				}
				if err == nil {
					done.Add(1)
				} else if !fault.Is(err, fault.Conflict) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if done.Load() != 1 {
			t.Errorf("%d rotations", done.Load())
		}
		w.expectKeys(dom, "rsa active, ed25519 active, rsa pending")
	})
}

// The number of keys is limited, even with frequent rotations.
func TestManyKeys(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "shop.test")
	for n := 0; ; n++ {
		_, e, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.AddKey(t.Context(), w.ann, dom.ID, fmt.Sprint("s", n), pkcs8(t, e))
		if code(err) == "too_many_keys" {
			if n < 15 {
				t.Errorf("%d keys are too many", n)
			}
			return
		}
		if err != nil || n > 100 {
			t.Fatal(n, err)
		}
		w.publish(dom)
		w.check(dom)
	}
}
