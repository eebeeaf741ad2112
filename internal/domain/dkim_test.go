// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
)

// keys lists a domain's DKIM keys, oldest first.
func (w *world) keys(dom domain.Domain) []domain.DKIMKey {
	w.t.Helper()
	keys, more, err := w.Keys(w.t.Context(), dom.Account, dom.ID, db.Page{Limit: db.MaxPage})
	if err != nil || more {
		w.t.Fatal(err, more)
	}
	slices.Reverse(keys)
	return keys
}

// expectKeys wants the keys to be in these states, as "rsa active, …".
func (w *world) expectKeys(dom domain.Domain, want string) []domain.DKIMKey {
	w.t.Helper()
	keys := w.keys(dom)
	var got []string
	for _, k := range keys {
		got = append(got, k.Algorithm+" "+k.State)
	}
	if strings.Join(got, ", ") != want {
		w.t.Errorf("the keys are %v, want %s", got, want)
	}
	return keys
}

// signs lists the selectors that a domain signs with, here and on another
// node.
func (w *world) signs(dom domain.Domain, node *domain.Domains) (selectors []string) {
	w.t.Helper()
	for _, d := range []*domain.Domains{w.Domains, node} {
		s, err := d.Sender(w.t.Context(), dom.Account, dom.Name)
		if err != nil {
			w.t.Fatal(err)
		}
		var all []string
		for _, k := range s.Signer.Keys {
			all = append(all, k.Selector)
		}
		if selectors != nil && !slices.Equal(all, selectors) {
			w.t.Errorf("one node signs with %v, another with %v", selectors, all)
		}
		selectors = all
	}
	return selectors
}

func (w *world) poll() {
	w.t.Helper()
	if _, err := w.Poll(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(dom domain.Domain) domain.Domain {
	w.t.Helper()
	got, err := w.Get(w.t.Context(), dom.Account, dom.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// asks reports whether a domain's records and its zone file ask for a key.
func (w *world) asks(dom domain.Domain, k domain.DKIMKey) (r domain.Record, ok bool) {
	w.t.Helper()
	for _, r = range w.get(dom).Records {
		if r.Name == k.Record.Name {
			ok = true
			break
		}
	}
	text, err := w.Zone(w.t.Context(), dom.Account, dom.ID)
	if err != nil || strings.Contains(text, "\n"+k.Record.Name+".") != ok {
		w.t.Errorf("the records ask for %s: %t; the zone file says\n%s\n%v", k.Record.Name, ok, text, err)
	}
	return r, ok
}

var privateOf = db.SQL(`SELECT private FROM dkim_key WHERE id = $1`)

// A rotation from its beginning to its end, by the polling alone.
func TestRotation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t)
		w.zone = zone
		w.Domains = w.another(dnstest.Resolver(t, addr))
		node := w.another(dnstest.Resolver(t, addr)) // hears no signal
		dom := w.create(w.ann, "shop.test")
		old := w.expectKeys(dom, "rsa pending, ed25519 pending")
		w.publish(dom)
		w.expect(w.check(dom), domain.Verified, true, true)
		w.expectKeys(dom, "rsa active, ed25519 active")
		if got := w.signs(dom, node); !slices.Equal(got, []string{old[0].Selector, old[1].Selector}) {
			t.Errorf("signs with %v", got)
		}

		made, err := w.Rotate(t.Context(), w.ann, dom.ID, "")
		if err != nil || len(made) != 2 || made[0].Algorithm != "rsa" || made[0].State != domain.KeyPending || made[1].Record.Name == old[1].Record.Name {
			t.Fatalf("made %+v, %v", made, err)
		}
		w.expectKeys(dom, "rsa active, ed25519 active, rsa pending, ed25519 pending")
		for _, algorithm := range []string{"", "rsa", "ed25519"} {
			if _, err := w.Rotate(t.Context(), w.ann, dom.ID, algorithm); !fault.Is(err, fault.Conflict) {
				t.Errorf("a second rotation of %q: %v", algorithm, err)
			}
		}
		// Not seen for long: nothing changes, and the polling goes on.
		for range 40 {
			w.clock.pass(time.Hour)
			w.poll()
		}
		w.expect(w.get(dom), domain.Verified, true, true)
		if got := w.signs(dom, node); !slices.Equal(got, []string{old[0].Selector, old[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		if r, ok := w.asks(dom, made[0]); !ok || r.Required || r.Status != domain.RecordFailed || !strings.Contains(r.Note, "once it was seen") {
			t.Errorf("the new key's record: %+v", r)
		}
		// One of them is seen: it is used alone for its algorithm.
		w.zone.Set(made[1].Record.Name, `TXT "`+made[1].Record.Value+`"`)
		w.clock.pass(2 * time.Hour)
		w.poll()
		w.clock.pass(10 * time.Second)
		w.expectKeys(dom, "rsa active, ed25519 retiring, rsa pending, ed25519 active")
		if got := w.signs(dom, node); !slices.Equal(got, []string{old[0].Selector, made[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		w.zone.Set(made[1].Record.Name)
		w.publish(dom)
		w.clock.pass(2 * time.Hour)
		w.poll()
		w.clock.pass(10 * time.Second)
		keys := w.expectKeys(dom, "rsa retiring, ed25519 retiring, rsa active, ed25519 active")
		if got := w.signs(dom, node); !slices.Equal(got, []string{made[0].Selector, made[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		until := keys[0].KeepUntil.Sub(w.clock.now())
		r, ok := w.asks(dom, old[0])
		if until > 7*24*time.Hour || until < 7*24*time.Hour-time.Minute || !ok || r.Required || r.Status != domain.RecordVerified ||
			!strings.Contains(r.Note, keys[0].KeepUntil.Format("2 January 2006")) {
			t.Errorf("kept for %v; %+v", until, r)
		}
		if r, ok := w.asks(dom, made[0]); !ok || !r.Required || r.Note != "" {
			t.Errorf("the new key's record: %+v", r)
		}

		// Kept for a week, then destroyed.
		w.clock.pass(until - time.Minute)
		w.poll()
		w.expectKeys(dom, "rsa retiring, ed25519 retired, rsa active, ed25519 active")
		w.clock.pass(time.Minute)
		w.poll()
		keys = w.expectKeys(dom, "rsa retired, ed25519 retired, rsa active, ed25519 active")
		for _, k := range keys[:2] {
			var private []byte
			if err := w.db.One(t.Context(), privateOf.With(k.ID), &private); err != nil || len(private) != 0 {
				t.Errorf("%d bytes of the retired key are left, %v", len(private), err)
			}
			if _, ok := w.asks(dom, k); ok || k.RetiredAt.IsZero() || !k.KeepUntil.IsZero() || !strings.Contains(k.Record.Note, "Remove") {
				t.Errorf("a retired key is asked for: %+v", k)
			}
			w.zone.Set(k.Record.Name)
		}
		w.expect(w.check(dom), domain.Verified, true, true)
		if got := w.signs(dom, node); !slices.Equal(got, []string{made[0].Selector, made[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
		if n := w.verifiedEvents(w.ann); n != 1 {
			t.Errorf("%d events", n)
		}
		w.clock.pass(91 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa active, ed25519 active")
	})
}

// A rotation that is taken back in the DNS is survived with the old keys.
func TestRotationRolledBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t)
		w.zone = zone
		w.Domains = w.another(dnstest.Resolver(t, addr))
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.check(dom)
		made, err := w.Rotate(t.Context(), w.ann, dom.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		w.publish(dom)
		w.check(dom)
		old := w.expectKeys(dom, "rsa retiring, ed25519 retiring, rsa active, ed25519 active")
		for _, k := range made {
			w.zone.Set(k.Record.Name)
		}
		w.expect(w.check(dom), domain.Verified, true, true)
		if got := w.signs(dom, w.Domains); !slices.Equal(got, []string{old[0].Selector, old[1].Selector}) {
			t.Errorf("signs with %v", got)
		}
	})
}

func TestRotationSchedule(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t)
		w.zone = zone
		resolver := dnstest.Resolver(t, addr)
		w.Domains = w.another(resolver)
		dom := w.create(w.ann, "shop.test")
		set := func(days int) error {
			got, err := w.Change(t.Context(), w.ann, dom.ID, domain.Change{RotationDays: &days})
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
		if _, err := w.Change(t.Context(), w.bob, dom.ID, domain.Change{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		if err := set(30); err != nil {
			t.Fatal(err)
		}
		// What was never seen is not rotated.
		w.clock.pass(40 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa pending, ed25519 pending")
		w.publish(dom)
		w.check(dom)
		w.clock.pass(29 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa active, ed25519 active")
		// Three nodes poll: one rotates.
		w.clock.pass(24 * time.Hour)
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
		w.clock.pass(time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa retiring, ed25519 retiring, rsa active, ed25519 active")
		if err := set(0); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(60 * 24 * time.Hour)
		w.poll()
		w.expectKeys(dom, "rsa retired, ed25519 retired, rsa active, ed25519 active")
		// Turned on, what is overdue is rotated soon; a key of one's own is not.
		if _, err := w.AddKey(t.Context(), w.ann, dom.ID, "mine", rsaPEM(t)); err != nil {
			t.Fatal(err)
		}
		w.publish(dom)
		w.check(dom)
		if err := set(7); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(2 * time.Minute)
		w.poll()
		w.expectKeys(dom, "rsa retired, ed25519 retired, rsa retiring, ed25519 active, rsa active, ed25519 pending")
	})
}

func rsaPEM(t testing.TB) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

func pkcs8(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func TestOwnKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ctx := t.Context()
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.check(dom)
		first := w.keys(dom)
		mine := rsaPEM(t)
		k, err := w.AddKey(ctx, w.ann, dom.ID, " S1.Mail ", mine)
		if err != nil || k.Selector != "s1.mail" || !k.Own || k.State != domain.KeyPending || k.Record.Name != "s1.mail._domainkey.shop.test" {
			t.Fatalf("added %+v, %v", k, err)
		}
		if _, err := w.AddKey(ctx, w.ann, dom.ID, "s1.MAIL", rsaPEM(t)); code(err) != "selector_taken" {
			t.Errorf("the same selector: %v", err)
		}
		if _, err := w.AddKey(ctx, w.ann, dom.ID, "s2", rsaPEM(t)); code(err) != "key_pending" {
			t.Errorf("another of the algorithm: %v", err)
		}
		if _, err := w.AddKey(ctx, w.ann, dom.ID, strings.ToUpper(first[0].Selector), rsaPEM(t)); code(err) != "selector_taken" {
			t.Errorf("a made selector: %v", err)
		}
		if _, err := w.AddKey(ctx, w.bob, dom.ID, "s3", mine); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's domain: %v", err)
		}
		w.publish(dom)
		w.expect(w.check(dom), domain.Verified, true, true)
		w.expectKeys(dom, "rsa retiring, ed25519 active, rsa active")
		s, err := w.Sender(ctx, w.ann, "shop.test")
		if err != nil || len(s.Signer.Keys) != 2 || s.Signer.Keys[1].Selector != "s1.mail" {
			t.Fatalf("signs with %+v, %v", s.Signer, err)
		}
		_, e, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.AddKey(ctx, w.ann, dom.ID, "e1", pkcs8(t, e)); err != nil {
			t.Errorf("Ed25519: %v", err)
		}
		curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.AddKey(ctx, w.ann, dom.ID, "-", pkcs8(t, curve))
		var f *fault.Error
		if !errors.As(err, &f) || len(f.Fields) != 2 || f.Fields[0].Field != "selector" || f.Fields[1].Field != "private_key" || f.Fields[1].Code != "unsupported_key" {
			t.Errorf("all wrong: %v", err)
		}
		for _, bad := range []string{"", " ", ".", "a.", ".a", "a..b", "-a", "a-", "a_b", "ü", "a b", "a;b", strings.Repeat("a", 64), "a.b.c.d.e",
			strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 50)} {
			if _, err := w.AddKey(ctx, w.ann, dom.ID, bad, mine); !fault.Is(err, fault.Invalid) {
				t.Errorf("selector %q: %v", bad, err)
			}
		}
		if strings.Contains(fmt.Sprintf("%+v", w.keys(dom)), "PRIVATE") {
			t.Error("a private key is shown")
		}
	})
}

func code(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return fmt.Sprint(err)
}

func TestDeleteKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ctx := t.Context()
		dom := w.create(w.ann, "shop.test")
		keys := w.keys(dom)
		del := func(k domain.DKIMKey) error { return w.DeleteKey(ctx, w.ann, dom.ID, k.ID) }
		w.zone.Add("_mailstead.shop.test. TXT " + `"` + record(t, dom, domain.Ownership).Value + `"`)
		w.zone.Set(keys[0].Record.Name, `TXT "`+keys[0].Record.Value+`"`)
		w.expect(w.check(dom), domain.Pending, false, true)
		if err := del(keys[0]); code(err) != "last_key" {
			t.Errorf("the only one that was seen: %v", err)
		}
		if err := w.DeleteKey(ctx, w.bob, dom.ID, keys[1].ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		other := w.create(w.ann, "other.test")
		if err := w.DeleteKey(ctx, w.ann, other.ID, keys[1].ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("of another domain: %v", err)
		}
		if err := del(keys[1]); err != nil {
			t.Errorf("one of two: %v", err)
		}
		if err := del(keys[1]); !fault.Is(err, fault.NotFound) {
			t.Errorf("again: %v", err)
		}
		if err := del(keys[0]); code(err) != "last_key" {
			t.Errorf("the last: %v", err)
		}
		// A rotation renews what there is; a new key that nobody wants is deleted.
		made, err := w.Rotate(ctx, w.ann, dom.ID, "")
		if err != nil || len(made) != 1 || made[0].Algorithm != "rsa" {
			t.Fatalf("made %+v, %v", made, err)
		}
		if err := del(made[0]); err != nil {
			t.Errorf("a pending one: %v", err)
		}
		if _, err = w.Rotate(ctx, w.ann, dom.ID, "rsa"); err != nil {
			t.Fatal(err)
		}
		w.publish(dom)
		w.expect(w.check(dom), domain.Verified, true, true) // though no Ed25519 key is there
		w.expectKeys(dom, "rsa retiring, rsa active")
		if err := del(keys[0]); err != nil {
			t.Errorf("a retiring one: %v", err)
		}
		if _, err := w.Rotate(ctx, w.ann, dom.ID, "ed25519"); err != nil {
			t.Errorf("an algorithm that is not in use: %v", err)
		}
		if _, err := w.Rotate(ctx, w.ann, dom.ID, "dsa"); !fault.Is(err, fault.Invalid) {
			t.Errorf("an unknown algorithm: %v", err)
		}
		if _, err := w.Rotate(ctx, w.bob, dom.ID, ""); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		w.publish(dom)
		w.check(dom)
		w.expectKeys(dom, "rsa active, ed25519 active")
		// Two at once, which together would leave none: one is refused.
		keys = w.keys(dom)
		var done atomic.Int32
		var group sync.WaitGroup
		for _, k := range keys {
			group.Go(func() {
				if err := del(k); err == nil {
					done.Add(1)
				} else if code(err) != "last_key" {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if done.Load() != 1 {
			t.Errorf("%d deleted", done.Load())
		}
	})
}

// Of many rotations at once, on several nodes, one is carried out.
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
					_, err = n.Rotate(t.Context(), w.ann, dom.ID, "rsa")
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

// So many keys can't be, however often one rotates.
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

// The sandbox publishes every key that is asked for.
func TestSandboxKeys(t *testing.T) {
	w := open(t, dbOf(t))
	server, err := dns.Listen(dns.ServerConfig{Addr: "127.0.0.1:0", Source: w.Records})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close() //nolint:errcheck // nothing to lose
	w.Domains = w.another(dnstest.Resolver(t, server.Addr()))
	dom := w.create(w.ann, "demo.test")
	w.check(dom)
	if _, err := w.AddKey(t.Context(), w.ann, dom.ID, "a.b.c.d", rsaPEM(t)); err != nil {
		t.Fatal(err)
	}
	w.expect(w.check(dom), domain.Verified, true, true)
	w.expectKeys(dom, "rsa retiring, ed25519 active, rsa active")
}
