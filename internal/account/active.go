// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// standing is an account's status as it was a moment ago.
type standing struct {
	active bool
	until  time.Time
}

var statusByID = db.SQL(`SELECT status FROM account WHERE id = $1`)

// Active reports whether an account is there and not suspended. It may be some
// seconds behind what another node did.
func (a *Accounts) Active(ctx context.Context, id db.ID) (bool, error) {
	now := a.now()
	a.mu.Lock()
	s, ok := a.standing[id]
	mark := a.changes
	a.mu.Unlock()
	if ok && now.Before(s.until) {
		return s.active, nil
	}
	active, err := ActiveIn(ctx, a.db, id)
	if err != nil {
		return false, err
	}
	s = standing{active, now.Add(knownFor)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes != mark {
		return s.active, nil
	}
	if len(a.standing) >= maxKnown {
		clear(a.standing)
	}
	a.standing[id] = s
	return s.active, nil
}

var suspendedAccounts = db.SQL(`SELECT id FROM account WHERE status = 'suspended'`)

// SuspendedAccounts are the accounts that are suspended now.
func SuspendedAccounts(ctx context.Context, r db.Reader) (map[db.ID]bool, error) {
	all := map[db.ID]bool{}
	err := r.Each(ctx, suspendedAccounts.With(), func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		all[id] = true
		return err
	})
	return all, err
}

// ActiveIn reports whether an account is there and not suspended, now.
func ActiveIn(ctx context.Context, r db.Reader, id db.ID) (bool, error) {
	var status string
	if err := r.One(ctx, statusByID.With(id), &status); err != nil && !errors.Is(err, db.ErrNoRow) {
		return false, err
	}
	return status == Active, nil
}
