// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// cachedStatus is a recent status of an account.
type cachedStatus struct {
	active    bool
	expiresAt time.Time
}

var statusByIDQuery = db.SQL(`SELECT status FROM account WHERE id = $1`)

// IsActive reports whether an account exists and is not suspended. The result may be some seconds
// older than a change on another node.
func (a *Accounts) IsActive(ctx context.Context, id db.ID) (bool, error) {
	now := a.now()
	a.mu.Lock()
	s, ok := a.statusCache[id]
	mark := a.changeCount
	a.mu.Unlock()
	if ok && now.Before(s.expiresAt) {
		return s.active, nil
	}
	active, err := IsActive(ctx, a.db, id)
	if err != nil {
		return false, err
	}
	s = cachedStatus{active, now.Add(cacheTTL)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changeCount != mark {
		return s.active, nil
	}
	if len(a.statusCache) >= maxCachedKeys {
		clear(a.statusCache)
	}
	a.statusCache[id] = s
	return s.active, nil
}

var suspendedAccountsQuery = db.SQL(`SELECT id FROM account WHERE status = 'suspended'`)

// SuspendedAccounts returns the accounts that are suspended now.
func SuspendedAccounts(ctx context.Context, r db.Reader) (map[db.ID]bool, error) {
	all := map[db.ID]bool{}
	err := r.Each(ctx, suspendedAccountsQuery.With(), func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		all[id] = true
		return err
	})
	return all, err
}

// IsActive reports whether an account exists and is not suspended, without a cache.
func IsActive(ctx context.Context, r db.Reader, id db.ID) (bool, error) {
	var status string
	err := r.One(ctx, statusByIDQuery.With(id), &status)
	return status == StatusActive, db.IfNoRow(err, nil)
}
