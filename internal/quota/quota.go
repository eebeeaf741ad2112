// SPDX-License-Identifier: Apache-2.0

// Package quota limits the usage of an account and of each of its keys: requests per second,
// messages per hour and day, recipients per day, and storage.
//
// Hours and days are in UTC, and are counted over all nodes. A node draws a block of the remaining
// quota from a row and spends it in memory, so that a send usually needs no database access. A
// limit is never exceeded. A node returns unspent blocks after a few idle seconds, and when it
// stops. A node that crashes loses its unspent blocks until the window ends: at most 1/32 of the
// remaining quota, and at most 4,096. Each node limits requests per second by itself: with several
// nodes the total may be that many times higher.
package quota

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
)

// Rates are rate limits. 0 is no limit.
type Rates struct {
	RequestsPerSecond int64 // API requests per second, on each node
	Burst             int64 // API requests that may come at once; 0: as many as per second
	SendsPerHour      int64 // messages, regardless of the number of recipients
	SendsPerDay       int64
	RecipientsPerDay  int64
}

// AccountLimits are the limits of an account.
type AccountLimits struct {
	Rates
	// StorageMB is the maximum sum of the quotas of its mailboxes, in megabytes of 1,048,576 bytes.
	StorageMB int64
}

// Defaults returns the limits of an account for which the operator set none. They stop runaway
// clients, not legitimate bulk senders.
func Defaults() AccountLimits {
	return AccountLimits{
		Rates:     Rates{RequestsPerSecond: 2_000, Burst: 20_000, SendsPerHour: 1_000_000, SendsPerDay: 10_000_000, RecipientsPerDay: 20_000_000},
		StorageMB: 10 << 20,
	}
}

// Consumer is an account, with a key or without, whose usage is counted.
type Consumer struct {
	Account  db.ID
	Key      db.ID // 0 for a mailbox
	KeyRates Rates // the key's own limits, in addition to the account's
	keyOnly  bool  // only KeyRates applies
}

// These are used as a key. No key has one of these ids.
const (
	roleMailKey db.ID = 1 + iota
	returnedMailKey
)

// RoleMailConsumer returns the consumer of mail to a role address that is forwarded to the owners
// of the account. Anybody can write to such an address, so this mail does not use the account's
// limits. It has its own limit, 100 messages an hour and 500 a day.
func RoleMailConsumer(account db.ID) Consumer {
	return Consumer{Account: account, Key: roleMailKey, KeyRates: Rates{SendsPerHour: 100, SendsPerDay: 500}, keyOnly: true}
}

// ReturnedMailConsumer returns the consumer of reports about forwarded mail that are returned to
// its senders. The recipients of that mail can send any number of reports, so these do not use the
// account's limits. They have their own limit, 2,000 an hour and 20,000 a day.
func ReturnedMailConsumer(account db.ID) Consumer {
	return Consumer{Account: account, Key: returnedMailKey, KeyRates: Rates{SendsPerHour: 2_000, SendsPerDay: 20_000}, keyOnly: true}
}

// Limiter counts usage and enforces the limits. Its fields must be set before the first use.
type Limiter struct {
	DB       *db.DB
	Events   *event.Log
	Hub      *notify.Hub
	Defaults AccountLimits
	Now      func() time.Time

	mu       sync.Mutex
	accounts map[db.ID]*accountState
}

// accountState is what this node knows about an account, with its unspent quota.
type accountState struct {
	id     db.ID
	usedAt time.Time  // guarded by Limiter.mu
	drawMu sync.Mutex // allows one draw at a time

	mu         sync.Mutex
	limits     AccountLimits
	loaded     bool
	freshUntil time.Time // until then limits need no reload
	meter      meter
	keys       map[db.ID]*meter
}

// meter counts the usage of an account or of a key.
type meter struct {
	bucket bucket
	pools  [limitCount]pool
	usedAt time.Time
}

// reloadInterval is the maximum delay until a change of limits by another process takes effect if
// its notification is lost or was never sent.
const reloadInterval = 5 * time.Second

// load returns an account with its limits.
func (l *Limiter) load(ctx context.Context, id db.ID) (*accountState, error) {
	now := l.Now()
	l.mu.Lock()
	a := l.accounts[id]
	if a == nil {
		if l.accounts == nil {
			l.accounts = map[db.ID]*accountState{}
		}
		a = &accountState{id: id, keys: map[db.ID]*meter{}}
		l.accounts[id] = a
	}
	a.usedAt = now
	l.mu.Unlock()

	a.mu.Lock()
	loaded, current := a.loaded, now.Before(a.freshUntil)
	if loaded && !current {
		a.freshUntil = now.Add(reloadInterval) // concurrent calls use the known limits
	}
	a.mu.Unlock()
	if loaded && current {
		return a, nil
	}
	set, err := l.AccountLimits(ctx, id)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.limits, a.loaded, a.freshUntil = set, true, now.Add(reloadInterval)
	case a.loaded:
		err = nil // the last known limits are good enough
	}
	return a, err
}

// Invalidate makes the limiter read an account's limits again. The server calls it when another
// node changed them.
func (l *Limiter) Invalidate(id db.ID) {
	l.mu.Lock()
	a := l.accounts[id]
	l.mu.Unlock()
	if a != nil {
		a.mu.Lock()
		a.freshUntil = time.Time{}
		a.mu.Unlock()
	}
}

// keyMeter returns the meter of a consumer's key; nil for a key without its own limits. a.mu is
// held.
func (a *accountState) keyMeter(w Consumer, now time.Time) *meter {
	if w.Key == 0 || w.KeyRates == (Rates{}) {
		return nil
	}
	m := a.keys[w.Key]
	if m == nil {
		m = &meter{}
		a.keys[w.Key] = m
	}
	m.usedAt = now
	return m
}
