// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func open(t *testing.T, d *db.DB) (*account.Accounts, *clock, account.Account) {
	t.Helper()
	c := &clock{time.Now().Truncate(time.Second)}
	a := account.New(d, &notify.Hub{}, c.now)
	acc, err := a.Create(t.Context(), "Ann@Example.com", "Ann")
	if err != nil {
		t.Fatal(err)
	}
	return a, c, acc
}

var here = netip.MustParseAddr("::ffff:192.0.2.7")

func TestAccount(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, _, acc := open(t, d)
		if _, err := a.Create(t.Context(), "ann@EXAMPLE.com", ""); !fault.Is(err, fault.Conflict) {
			t.Errorf("the same address again: %v", err)
		}
		if _, err := a.Create(t.Context(), "no address", ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("no address: %v", err)
		}
		found, err := a.ByEmail(t.Context(), "ann@example.com")
		if err != nil || found.ID != acc.ID || !found.CreatedAt.Equal(acc.CreatedAt) {
			t.Errorf("found %+v, %v", found, err)
		}
		if _, err := a.Get(t.Context(), acc.ID+1); !fault.Is(err, fault.NotFound) {
			t.Errorf("nobody: %v", err)
		}
	})
}

func TestKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, c, acc := open(t, d)
		ctx := t.Context()
		key, token, err := a.CreateKey(ctx, acc.ID, account.KeyParams{
			Name: "shop", Scopes: []string{"outbound.send", "domains.write"}, Domain: "Shop.Example",
			Networks: []string{"192.0.2.0/24"}, ExpiresAt: c.t.Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Authenticate(ctx, token, here)
		if err != nil || p.Account != acc.ID || p.Domain != "shop.example" {
			t.Fatalf("got %+v, %v", p, err)
		}
		if !p.HasScope("domains.read") || !p.HasScope("outbound.send") || p.HasScope("mailboxes.read") || p.HasScope("api_keys.write") {
			t.Errorf("scopes %v allow the wrong things", p.Scopes)
		}
		if _, err := a.Authenticate(ctx, token, netip.MustParseAddr("198.51.100.1")); !fault.Is(err, fault.Denied) {
			t.Errorf("from elsewhere: %v", err)
		}
		if _, err := a.Authenticate(ctx, token+"x", here); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("a token mistyped: %v", err)
		}
		other, err := a.Create(ctx, "bob@example.com", "Bob")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.DeleteKey(ctx, other.ID, key.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another account's key: %v", err)
		}
		c.t = c.t.Add(time.Hour)
		if _, err := a.Authenticate(ctx, token, here); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("expired: %v", err)
		}
		c.t = c.t.Add(-time.Hour)
		if err := a.DeleteKey(ctx, acc.ID, key.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Authenticate(ctx, token, here); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("deleted: %v", err)
		}
	})
}

func TestNewKeyTellsAllFaults(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, c, acc := open(t, d)
		_, _, err := a.CreateKey(t.Context(), acc.ID, account.KeyParams{
			Scopes: []string{"*", "everything"}, Domain: "a b", Networks: []string{"10.0.0.0/99"}, ExpiresAt: c.t,
		})
		f, ok := err.(*fault.Error) //nolint:errorlint // exactly this type
		if !ok {
			t.Fatalf("got %v", err)
		}
		var fields []string
		for _, one := range f.Fields {
			fields = append(fields, one.Path)
		}
		if want := []string{"name", "scopes[1]", "domain", "allowed_ips[0]", "expires_at"}; !slices.Equal(fields, want) {
			t.Errorf("fields %v, want %v", fields, want)
		}
	})
}

func TestKeyPages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, _, acc := open(t, d)
		var made []db.ID
		for range 5 {
			k, _, err := a.CreateKey(t.Context(), acc.ID, account.KeyParams{Name: "k"})
			if err != nil {
				t.Fatal(err)
			}
			made = append([]db.ID{k.ID}, made...) // newest first
		}
		page := func(p db.Page) (ids []db.ID, more bool) {
			keys, more, err := a.Keys(t.Context(), acc.ID, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				ids = append(ids, k.ID)
			}
			return ids, more
		}
		if ids, more := page(db.Page{Limit: 2}); !slices.Equal(ids, made[:2]) || !more {
			t.Errorf("first page %v, %v", ids, more)
		}
		if ids, more := page(db.Page{Limit: 3, After: made[1]}); !slices.Equal(ids, made[2:]) || more {
			t.Errorf("last page %v, %v", ids, more)
		}
		if ids, more := page(db.Page{Limit: 2, Before: made[3]}); !slices.Equal(ids, made[1:3]) || !more {
			t.Errorf("page before %v, %v", ids, more)
		}
	})
}

// The operators' keys belong to an account of no customer; neither they nor customers' keys have
// the scopes of the other.
func TestOperatorKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, _, acc := open(t, d)
		ctx := t.Context()
		var principals []account.Principal
		for _, scopes := range [][]string{nil, {account.ScopeOperator}} {
			_, token, err := a.CreateKey(ctx, account.OperatorAccount, account.KeyParams{Name: "operator", Scopes: scopes})
			if err != nil {
				t.Fatal(err)
			}
			p, err := a.Authenticate(ctx, token, here)
			if err != nil || !p.HasScope(account.ScopeOperator) || p.Account != account.OperatorAccount {
				t.Fatalf("got %+v, %v", p, err)
			}
			principals = append(principals, p)
		}
		for _, scope := range account.Scopes() {
			if principals[0].HasScope(scope) {
				t.Errorf("an operator has %s", scope)
			}
			if scope == account.ScopeOperator {
				t.Error("customers can give the scope of operators")
			}
		}
		for _, n := range []account.KeyParams{
			{Name: "x", Scopes: []string{account.ScopeOperator, "domains.read"}},
			{Name: "x", Scopes: []string{account.ScopeAll}},
			{Name: "x", Domain: "example.com"},
		} {
			if _, _, err := a.CreateKey(ctx, account.OperatorAccount, n); !fault.Is(err, fault.Invalid) {
				t.Errorf("an operator's key %+v: %v", n, err)
			}
		}
		if _, _, err := a.CreateKey(ctx, acc.ID, account.KeyParams{Name: "x", Scopes: []string{account.ScopeOperator}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a customer's key with the scope of operators: %v", err)
		}
		if _, _, err := a.DelegateKey(ctx, account.Principal{Account: acc.ID, Scopes: []string{account.ScopeAll}}, account.KeyParams{Name: "x", Scopes: []string{account.ScopeOperator}}); !fault.Is(err, fault.Denied) {
			t.Errorf("given on: %v", err)
		}
		if (account.Principal{Account: acc.ID, Scopes: []string{account.ScopeAll, account.ScopeOperator}}).HasScope(account.ScopeOperator) {
			t.Error("a customer's key is an operator's")
		}
		if _, err := a.Create(ctx, "operators", ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("an account of that name: %v", err)
		}
		if err := a.DeleteKey(ctx, acc.ID, principals[0].Key); !fault.Is(err, fault.NotFound) {
			t.Errorf("deleted by a customer: %v", err)
		}
	})
}
