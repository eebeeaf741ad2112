// SPDX-License-Identifier: Apache-2.0

package suppression_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
)

func newList(t testing.TB, d *db.DB) *suppression.List {
	return &suppression.List{DB: d, Key: testkit.Key(t), BaseURL: "https://mail.example.net",
		Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }}
}

func parse(t testing.TB, texts ...string) (all []address.Address) {
	t.Helper()
	for _, text := range texts {
		a, err := address.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, a)
	}
	return all
}

// mustAdd runs the statement of an entry; it reports whether the entry is new.
func mustAdd(t testing.TB, l *suppression.List, e suppression.Entry) bool {
	t.Helper()
	s, ok := l.AddStatement(e)
	if !ok {
		return false
	}
	return dbtest.Exec(t, l.DB, s) == 1
}

type reasons = map[string]suppression.Reason

func TestBlocked(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newList(t, d)
		me, other := d.NewID(), d.NewID()
		for _, e := range []suppression.Entry{
			{Account: me, Address: "Bounced@Example.org", Reason: suppression.ReasonBounce, Message: 7, Delivery: 2, Diagnostic: "550 no"},
			{Account: me, Address: "spam@bücher.example", Reason: suppression.ReasonComplaint},
			{Account: me, Address: "left@example.org", Reason: suppression.ReasonUnsubscribe},
			{Account: me, Address: "both@example.org", Reason: suppression.ReasonUnsubscribe},
			{Account: me, Address: "both@example.org", Reason: suppression.ReasonBounce},
			{Account: me, Address: "bounced+x@simulator.test", Reason: suppression.ReasonBounce},
			{Account: me, Address: "complained+x@simulator.test", Reason: suppression.ReasonComplaint},
			{Account: other, Address: "other@example.org", Reason: suppression.ReasonManual},
		} {
			if !mustAdd(t, l, e) {
				t.Fatalf("%s was not added", e.Address)
			}
		}
		for _, e := range []suppression.Entry{
			{Account: me, Address: "bounced@example.org", Reason: suppression.ReasonComplaint},
			{Account: me, Address: "complained@simulator.test", Reason: suppression.ReasonBounce},
			{Account: me, Address: "bounced@simulator.test", Reason: suppression.ReasonComplaint},
			{Account: me, Address: "bounced@simulator.test", Reason: suppression.ReasonManual},
			{Account: me, Address: "nobody@simulator.test", Reason: suppression.ReasonBounce},
			{Account: me, Address: "no address", Reason: suppression.ReasonBounce},
		} {
			if mustAdd(t, l, e) {
				t.Errorf("%s was added as %s", e.Address, e.Reason)
			}
		}
		asked := parse(t, "bounced@example.org", "BOUNCED@example.org", "bounced+x@example.org", "Spam@xn--bcher-kva.example",
			"left@example.org", "both@example.org", "other@example.org", "bounced@simulator.test", "bounced+x@simulator.test", "complained+x@simulator.test",
			"Suppressed+label@simulator.test", "delivered@simulator.test")
		want := reasons{"bounced@example.org": suppression.ReasonBounce, "spam@xn--bcher-kva.example": suppression.ReasonComplaint,
			"both@example.org": suppression.ReasonBounce, "suppressed+label@simulator.test": suppression.ReasonBounce}
		blocked(t, l, me, asked, false, want)
		want["left@example.org"] = suppression.ReasonUnsubscribe
		blocked(t, l, me, asked, true, want)

		for i := range asked { // the same addresses one by one
			a := asked[i : i+1]
			single := maps.Clone(want)
			maps.DeleteFunc(single, func(k string, _ suppression.Reason) bool { return k != a[0].Key() })
			blocked(t, l, me, a, true, single)
		}
		var many []address.Address
		for i := range 120 {
			many = append(many, parse(t, fmt.Sprintf("user%d@example.org", i))...)
		}
		many = append(many, asked...)
		blocked(t, l, me, many, true, want)
		blocked(t, l, me, many[:50], true, nil)
		blocked(t, l, me, nil, true, nil)

		e, err := l.Get(t.Context(), me, "BOUNCED@example.org")
		if err != nil || e.Reason != suppression.ReasonBounce || e.Message != 7 || e.Delivery != 2 || e.Diagnostic != "550 no" || e.Simulated ||
			!e.CreatedAt.Equal(l.Now()) {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err = l.Get(t.Context(), me, "bounced+x@simulator.test"); err != nil || !e.Simulated {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err = l.Get(t.Context(), me, "both@example.org"); err != nil || e.Reason != suppression.ReasonBounce {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

func blocked(t *testing.T, l *suppression.List, account db.ID, asked []address.Address, unsubscribable bool, want reasons) {
	t.Helper()
	got, err := l.Blocked(t.Context(), account, asked, unsubscribable)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("unsubscribable %v: got %v, %v, want %v", unsubscribable, got, err, want)
	}
}

// If many goroutines add an address concurrently, exactly one succeeds, and its reason stays.
func TestAddRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newList(t, d)
		account := d.NewID()
		var first atomic.Int64
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				if mustAdd(t, l, suppression.Entry{Account: account, Address: "x@example.org", Reason: suppression.ReasonBounce, Delivery: i}) {
					first.Add(int64(i) + 1)
				}
			})
		}
		group.Wait()
		e, err := l.Get(t.Context(), account, "x@example.org")
		if err != nil || int64(e.Delivery) != first.Load()-1 {
			t.Errorf("%+v, %v; first was %d", e, err, first.Load()-1)
		}
	})
}

func TestListGetDelete(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newList(t, d)
		ctx, me, other := t.Context(), d.NewID(), d.NewID()
		put := func(account db.ID, reason suppression.Reason, addresses ...string) []suppression.Entry {
			t.Helper()
			entries, err := l.Put(ctx, account, parse(t, addresses...), reason)
			if err != nil || len(entries) != len(addresses) {
				t.Fatal(entries, err)
			}
			return entries
		}
		a := put(me, suppression.ReasonManual, "a@example.org", "b@example.org", "A@example.org")
		if a[0].ID != a[2].ID || a[1].Address != "b@example.org" || a[0].ID == a[1].ID {
			t.Errorf("%+v", a)
		}
		again := put(me, suppression.ReasonComplaint, "B@example.org", "c@example.org")
		if again[0].ID != a[1].ID || again[0].Reason != suppression.ReasonManual || again[1].Reason != suppression.ReasonComplaint {
			t.Errorf("%+v", again)
		}
		left := put(me, suppression.ReasonUnsubscribe, "b@example.org")[0]
		if left.Reason != suppression.ReasonUnsubscribe || left.ID == a[1].ID {
			t.Errorf("%+v", left)
		}
		put(other, suppression.ReasonManual, "d@example.org")
		if _, err := l.Put(ctx, me, parse(t, "e@example.org", "delivered@simulator.test", "bounced@simulator.test"), suppression.ReasonBounce); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}

		b := parse(t, "b@example.org")[0]
		for _, c := range []struct {
			filter suppression.Filter
			page   db.Page
			want   string
			more   bool
		}{
			{suppression.Filter{}, db.Page{}, "b c b a", false},
			{suppression.Filter{}, db.Page{Limit: 2}, "b c", true},
			{suppression.Filter{}, db.Page{Limit: 2, After: again[1].ID}, "b a", false},
			{suppression.Filter{}, db.Page{Limit: 1, Before: a[0].ID}, "b", true},
			{suppression.Filter{Reason: suppression.ReasonManual}, db.Page{}, "b a", false},
			{suppression.Filter{Reason: suppression.ReasonBounce}, db.Page{}, "", false},
			{suppression.Filter{Address: b}, db.Page{}, "b b", false},
			{suppression.Filter{Address: b}, db.Page{Limit: 1}, "b", true},
			{suppression.Filter{Address: b}, db.Page{After: left.ID}, "b", false},
			{suppression.Filter{Address: b}, db.Page{After: a[1].ID}, "", false},
			{suppression.Filter{Address: b}, db.Page{Limit: 1, Before: a[1].ID}, "b", false},
			{suppression.Filter{Address: b, Reason: suppression.ReasonUnsubscribe}, db.Page{}, "b", false},
			{suppression.Filter{Address: b, Reason: suppression.ReasonManual}, db.Page{Limit: 1}, "b", false},
		} {
			entries, more, err := l.List(ctx, me, c.filter, c.page)
			var got []string
			for _, e := range entries {
				got = append(got, e.Address[:1])
			}
			if err != nil || strings.Join(got, " ") != c.want || more != c.more {
				t.Errorf("%+v: %v %v, %v", c, got, more, err)
			}
		}

		for _, id := range []string{"nobody@example.org", "not an id", "@", d.NewID().String(), "d@example.org"} {
			if _, err := l.Get(ctx, me, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("getting %s: %v", id, err)
			}
			if err := l.Delete(ctx, me, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("deleting %s: %v", id, err)
			}
		}
		if err := l.Delete(ctx, other, a[0].ID.String()); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's entry: %v", err)
		}
		if err := l.Delete(ctx, me, a[0].ID.String()); err != nil {
			t.Error(err)
		}
		if err := l.Delete(ctx, me, "B@example.org"); err != nil {
			t.Error(err)
		}
		if entries, _, err := l.List(ctx, me, suppression.Filter{}, db.Page{}); err != nil || len(entries) != 1 || entries[0].Address != "c@example.org" {
			t.Errorf("%+v, %v", entries, err)
		}
	})
}

func TestLink(t *testing.T) {
	l := newList(t, nil)
	k := suppression.UnsubscribeLink{Account: 1 << 60, Message: 5, Address: "Bob+x@example.org"}
	url := l.UnsubscribeURL(k)
	token, ok := strings.CutPrefix(url, "https://mail.example.net/u/")
	if !ok || len(url) > 120 || strings.Contains(token, "=") {
		t.Errorf("the link %s", url)
	}
	if got, ok := l.ParseLink(token); !ok || got != k {
		t.Errorf("%+v, %v", got, ok)
	}
	longest := suppression.UnsubscribeLink{Account: 1, Address: strings.Repeat("a", 64) + "@" + strings.Repeat("b.", 92) + "test"}
	if got, ok := l.ParseLink(strings.TrimPrefix(l.UnsubscribeURL(longest), l.BaseURL+"/u/")); !ok || got != longest || len(l.UnsubscribeURL(longest)) > 500 {
		t.Errorf("%+v, %v, %d", got, ok, len(l.UnsubscribeURL(longest)))
	}
	elsewhere := newList(t, nil)
	key, err := secret.LoadOrCreateKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Key = key
	for _, bad := range []string{"", "x", token[1:], token[:len(token)-1], token + "A", token + "=", strings.ToLower(token), "\x00", strings.Repeat("A", 10_000)} {
		if got, ok := l.ParseLink(bad); ok {
			t.Errorf("%q was taken: %+v", bad, got)
		}
	}
	if _, ok := elsewhere.ParseLink(token); ok {
		t.Error("a link of another service was taken")
	}
}

func FuzzOpen(f *testing.F) {
	l := newList(f, nil)
	f.Add(strings.TrimPrefix(l.UnsubscribeURL(suppression.UnsubscribeLink{Account: 1, Message: 2, Address: "a@b.test"}), l.BaseURL+"/u/"))
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, token string) {
		if k, ok := l.ParseLink(token); ok && (k.Account != 1 || k.Message != 2 || k.Address != "a@b.test") {
			t.Errorf("%q was taken: %+v", token, k)
		}
	})
}
