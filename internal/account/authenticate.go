// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// Principal is the authenticated caller of a request: a key of an account.
type Principal struct {
	Account db.ID
	Key     db.ID
	Name    string // of the key
	Scopes  []string
	Domain  string // the only domain that it may use; "" for all
	Limits  Rates  // of the key, in addition to those of the account
}

// HasScope reports whether the principal has a scope. A write scope includes the read scope.
// Operators have none of the customers' scopes, and customers none of the operators'.
func (p Principal) HasScope(scope string) bool {
	if scope == ScopeOperator || p.Account == OperatorAccount {
		return scope == ScopeOperator && p.Account == OperatorAccount && slices.Contains(p.Scopes, ScopeOperator)
	}
	if slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, ScopeAll) {
		return true
	}
	resource, reads := strings.CutSuffix(scope, ".read")
	return reads && slices.Contains(p.Scopes, resource+".write")
}

// RequireScope returns fault.Denied unless the principal has a scope.
func (p Principal) RequireScope(scope string) error {
	if p.HasScope(scope) {
		return nil
	}
	return fault.New(fault.Denied, "missing_scope", "This API key lacks the scope %s.", scope)
}

// cachedKey is a recently used key.
type cachedKey struct {
	key           Key
	accountActive bool // whether the account is active
	expiresAt     time.Time
}

const (
	// cacheTTL is how long a key that another node deleted may still work here if that node's
	// notification is lost.
	cacheTTL      = 5 * time.Second
	maxCachedKeys = 10_000
	// lastUsedInterval is how often the time of use is written at most.
	lastUsedInterval = time.Minute
)

var (
	keyByHashQuery = db.SQL(`SELECT ` + keyColumns + `, a.status
		FROM api_key k JOIN account a ON a.id = k.account WHERE k.hash = $1`)
	touchKeyQuery = db.SQL(`UPDATE api_key SET last_used_at = $2 WHERE id = $1 AND last_used_at < $3`)
)

// Authenticate returns the principal of a token. An unknown or expired token is
// fault.Unauthenticated. A token used from outside its networks, or of a suspended account, is
// fault.Denied.
func (a *Accounts) Authenticate(ctx context.Context, token string, from netip.Addr) (Principal, error) {
	unknown := fault.New(fault.Unauthenticated, "invalid_api_key", "This API key is not valid. Check that it was copied whole, and that it was not deleted.")
	if !secret.IsWellFormedToken(secret.APIKeyPrefix, token) {
		return Principal{}, unknown
	}
	entry, err := a.lookUpKey(ctx, [32]byte(secret.HashToken(token)))
	if err != nil {
		return Principal{}, db.IfNoRow(err, unknown)
	}
	k, now := entry.key, a.now()
	from = from.Unmap()
	switch {
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Principal{}, fault.New(fault.Unauthenticated, "api_key_expired", "This API key has expired. Make a new one.")
	case !entry.accountActive:
		return Principal{}, fault.New(fault.Denied, "account_suspended", "This account is suspended. Ask the operator of the service.")
	case len(k.Networks) > 0 && !slices.ContainsFunc(k.Networks, func(p netip.Prefix) bool { return p.Contains(from) }):
		return Principal{}, fault.New(fault.Denied, "ip_not_allowed", "This API key may not be used from your address.")
	}
	if now.Sub(k.LastUsedAt) >= lastUsedInterval {
		a.touchKey(ctx, k.ID, now)
	}
	return Principal{Account: k.Account, Key: k.ID, Name: k.Name, Scopes: k.Scopes, Domain: k.Domain, Limits: k.Limits}, nil
}

func (a *Accounts) lookUpKey(ctx context.Context, hash [32]byte) (cachedKey, error) {
	now := a.now()
	a.mu.Lock()
	entry, ok := a.keyCache[hash]
	mark := a.changeCount
	a.mu.Unlock()
	if ok && now.Before(entry.expiresAt) {
		return entry, nil
	}
	var status string
	err := a.db.Each(ctx, keyByHashQuery.With(hash[:]), func(r db.Row) error {
		var err error
		entry.key, err = scanKey(db.WithExtra(r, &status))
		return err
	})
	if err != nil {
		return cachedKey{}, err
	}
	if status == "" {
		return cachedKey{}, db.ErrNoRow
	}
	entry.accountActive, entry.expiresAt = status == "active", now.Add(cacheTTL)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changeCount != mark {
		return entry, nil // a key was deleted meanwhile, perhaps this one: don't cache it
	}
	if len(a.keyCache) >= maxCachedKeys {
		clear(a.keyCache)
	}
	a.keyCache[hash] = entry
	return entry, nil
}

// touchKey records the time of use. It must not delay or fail a request, so it runs in the
// background, at most once a minute per key.
func (a *Accounts) touchKey(ctx context.Context, key db.ID, now time.Time) {
	a.mu.Lock()
	for hash, entry := range a.keyCache {
		if entry.key.ID == key {
			entry.key.LastUsedAt = now
			a.keyCache[hash] = entry
		}
	}
	a.mu.Unlock()
	go func() {
		_ = a.db.Write(context.WithoutCancel(ctx), key, &db.Mutation{Apply: func(b *db.Batch) {
			b.Queue(touchKeyQuery.With(key, db.Micros(now), db.Micros(now.Add(-lastUsedInterval/2))))
		}})
	}()
}

// Invalidate drops the cached keys of an account. The server calls it when another node changed
// them.
func (a *Accounts) Invalidate(account db.ID) { a.invalidate(account) }

func (a *Accounts) invalidate(account db.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changeCount++
	delete(a.statusCache, account)
	for hash, entry := range a.keyCache {
		if entry.key.Account == account {
			delete(a.keyCache, hash)
		}
	}
}
