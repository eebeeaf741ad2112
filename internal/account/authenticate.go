// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// Principal is who makes a request: a key of an account.
type Principal struct {
	Account db.ID
	Key     db.ID
	Name    string // of the key
	Scopes  []string
	Domain  string // it acts for this domain only; "" for all
	Limits  Rates  // of the key, beside those of the account
}

// Can reports whether the principal has a scope. Whoever may write may read;
// an operator may do nothing that customers may, and they nothing of its own.
func (p Principal) Can(scope string) bool {
	if scope == Operator || p.Account == Operators {
		return scope == Operator && p.Account == Operators && slices.Contains(p.Scopes, Operator)
	}
	if slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, All) {
		return true
	}
	resource, reads := strings.CutSuffix(scope, ".read")
	return reads && slices.Contains(p.Scopes, resource+".write")
}

// Require returns fault.Denied unless the principal has a scope.
func (p Principal) Require(scope string) error {
	if p.Can(scope) {
		return nil
	}
	return fault.New(fault.Denied, "missing_scope", "This API key lacks the scope %s.", scope)
}

// known is a key that was looked up a moment ago.
type known struct {
	key    Key
	active bool // the account is
	until  time.Time
}

const (
	// knownFor bounds how long a key that another node deleted still works
	// here should that node's signal be lost.
	knownFor = 5 * time.Second
	maxKnown = 10_000
	// usedEvery bounds how often the time of use is written.
	usedEvery = time.Minute
)

var (
	keyByHash = db.SQL(`SELECT k.id, k.account, k.name, k.hint, k.scopes, k.domain, k.networks, k.expires_at, k.last_used_at, k.exposed_at, k.created_at,
			k.requests_per_second, k.burst, k.sends_per_hour, k.sends_per_day, k.recipients_per_day, a.status
		FROM api_key k JOIN account a ON a.id = k.account WHERE k.hash = $1`)
	touchKey = db.SQL(`UPDATE api_key SET last_used_at = $2 WHERE id = $1 AND last_used_at < $3`)
)

// Authenticate finds out who uses a token. A token that is unknown or has
// expired is fault.Unknown; one used from elsewhere than its networks, or of a
// suspended account, is fault.Denied.
func (a *Accounts) Authenticate(ctx context.Context, token string, from netip.Addr) (Principal, error) {
	unknown := fault.New(fault.Unknown, "invalid_api_key", "This API key is not valid. Check that it was copied whole, and that it was not deleted.")
	if !secret.WellFormed(secret.APIKey, token) {
		return Principal{}, unknown
	}
	entry, err := a.lookUp(ctx, [32]byte(secret.Hash(token)))
	if errors.Is(err, db.ErrNoRow) {
		return Principal{}, unknown
	}
	if err != nil {
		return Principal{}, err
	}
	k, now := entry.key, a.now()
	from = from.Unmap()
	switch {
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Principal{}, fault.New(fault.Unknown, "api_key_expired", "This API key has expired. Make a new one.")
	case !entry.active:
		return Principal{}, fault.New(fault.Denied, "account_suspended", "This account is suspended. Ask the operator of the service.")
	case len(k.Networks) > 0 && !slices.ContainsFunc(k.Networks, func(p netip.Prefix) bool { return p.Contains(from) }):
		return Principal{}, fault.New(fault.Denied, "ip_not_allowed", "This API key may not be used from your address.")
	}
	if now.Sub(k.LastUsedAt) >= usedEvery {
		a.touch(ctx, k.ID, now)
	}
	return Principal{Account: k.Account, Key: k.ID, Name: k.Name, Scopes: k.Scopes, Domain: k.Domain, Limits: k.Limits}, nil
}

func (a *Accounts) lookUp(ctx context.Context, hash [32]byte) (known, error) {
	now := a.now()
	a.mu.Lock()
	entry, ok := a.known[hash]
	mark := a.changes
	a.mu.Unlock()
	if ok && now.Before(entry.until) {
		return entry, nil
	}
	var status string
	err := a.db.Each(ctx, keyByHash.With(hash[:]), func(r db.Row) error {
		var err error
		entry.key, err = scanKey(scanRest{r, &status})
		return err
	})
	if err != nil {
		return known{}, err
	}
	if status == "" {
		return known{}, db.ErrNoRow
	}
	entry.active, entry.until = status == "active", now.Add(knownFor)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes != mark {
		return entry, nil // a key was deleted meanwhile, perhaps this one: don't keep it
	}
	if len(a.known) >= maxKnown {
		clear(a.known)
	}
	a.known[hash] = entry
	return entry, nil
}

// scanRest scans one more column after those that the caller asks for.
type scanRest struct {
	db.Row
	last any
}

func (s scanRest) Scan(dst ...any) error { return s.Row.Scan(append(dst, s.last)...) }

// touch notes the time of use. That is a comfort: it must not slow or fail a
// request, so it happens beside it, at most once a minute per key.
func (a *Accounts) touch(ctx context.Context, key db.ID, now time.Time) {
	a.mu.Lock()
	for hash, entry := range a.known {
		if entry.key.ID == key {
			entry.key.LastUsedAt = now
			a.known[hash] = entry
		}
	}
	a.mu.Unlock()
	go func() {
		_ = a.db.Write(context.WithoutCancel(ctx), key, &db.Job{Apply: func(b *db.Batch) {
			b.Queue(touchKey.With(key, db.Micros(now), db.Micros(now.Add(-usedEvery/2))))
		}})
	}()
}

// Forget drops what is remembered of an account's keys; the server calls it
// when another node changed them.
func (a *Accounts) Forget(account db.ID) { a.forget(account) }

func (a *Accounts) forget(account db.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	delete(a.standing, account)
	for hash, entry := range a.known {
		if entry.key.Account == account {
			delete(a.known, hash)
		}
	}
}
