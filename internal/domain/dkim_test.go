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
	keys, more, err := w.Keys(w.t.Context(), dom.Account, dom.ID, db.Page{Limit: db.MaxPageSize})
	if err != nil || more {
		w.t.Fatal(err, more)
	}
	slices.Reverse(keys)
	return keys
}

// expectKeys fails unless the keys are in these states, as "rsa active, …".
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

// signs lists the selectors that a domain signs with, here and on another node.
func (w *world) signs(dom domain.Domain, node *domain.Domains) (selectors []string) {
	w.t.Helper()
	for _, d := range []*domain.Domains{w.Domains, node} {
		s, err := d.SendingDomain(w.t.Context(), dom.Account, dom.Name)
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

// asks reports whether a domain's records and its zone file contain a key.
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

var privateOf = db.SQL(`SELECT private_key FROM dkim_key WHERE id = $1`)

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
		if err != nil || k.Selector != "s1.mail" || !k.CustomerProvided || k.State != domain.KeyPending || k.Record.Name != "s1.mail._domainkey.shop.test" {
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
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		w.expectKeys(dom, "rsa retiring, ed25519 active, rsa active")
		s, err := w.SendingDomain(ctx, w.ann, "shop.test")
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
		if !errors.As(err, &f) || len(f.Fields) != 2 || f.Fields[0].Path != "selector" || f.Fields[1].Path != "private_key" || f.Fields[1].Code != "unsupported_key" {
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
	if f, ok := errors.AsType[*fault.Error](err); ok {
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
		w.zone.Add("_mailstead.shop.test. TXT " + `"` + record(t, dom, domain.KindOwnership).Value + `"`)
		w.zone.Set(keys[0].Record.Name, `TXT "`+keys[0].Record.Value+`"`)
		w.expect(w.check(dom), domain.StatusPending, false, true)
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
		// A rotation replaces existing keys; an unneeded new key is deleted.
		made, err := w.RotateKeys(ctx, w.ann, dom.ID, "")
		if err != nil || len(made) != 1 || made[0].Algorithm != "rsa" {
			t.Fatalf("made %+v, %v", made, err)
		}
		if err := del(made[0]); err != nil {
			t.Errorf("a pending one: %v", err)
		}
		if _, err = w.RotateKeys(ctx, w.ann, dom.ID, "rsa"); err != nil {
			t.Fatal(err)
		}
		w.publish(dom)
		w.expect(w.check(dom), domain.StatusVerified, true, true) // although no Ed25519 key is in the DNS
		w.expectKeys(dom, "rsa retiring, rsa active")
		if err := del(keys[0]); err != nil {
			t.Errorf("a retiring one: %v", err)
		}
		if _, err := w.RotateKeys(ctx, w.ann, dom.ID, "ed25519"); err != nil {
			t.Errorf("an algorithm that is not in use: %v", err)
		}
		if _, err := w.RotateKeys(ctx, w.ann, dom.ID, "dsa"); !fault.Is(err, fault.Invalid) {
			t.Errorf("an unknown algorithm: %v", err)
		}
		if _, err := w.RotateKeys(ctx, w.bob, dom.ID, ""); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		w.publish(dom)
		w.check(dom)
		w.expectKeys(dom, "rsa active, ed25519 active")
		// Two concurrent deletions, which together would leave no key: one is rejected.
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

// The sandbox publishes every expected key.
func TestSandboxKeys(t *testing.T) {
	w := open(t, dbOf(t))
	server := dnstest.ServeSource(t, dns.ServerConfig{}, w.ZoneRecords)
	w.Domains = w.another(dnstest.Resolver(t, server.Addr()))
	dom := w.create(w.ann, "demo.test")
	w.check(dom)
	if _, err := w.AddKey(t.Context(), w.ann, dom.ID, "a.b.c.d", rsaPEM(t)); err != nil {
		t.Fatal(err)
	}
	w.expect(w.check(dom), domain.StatusVerified, true, true)
	w.expectKeys(dom, "rsa retiring, ed25519 active, rsa active")
}
