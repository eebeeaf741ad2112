// SPDX-License-Identifier: Apache-2.0

// Package quota keeps how much an account, and each of its keys, may use:
// requests a second, messages an hour and a day, recipients a day, storage.
//
// Hours and days are those of UTC, and are counted over all nodes: a node draws
// a block of what is left from a row and spends it in memory, so that a send
// usually asks no database. A limit is never exceeded. What a node has drawn and
// did not spend it gives back when it has lain a few seconds, and at its end; a
// node that crashes loses that much, at most 1/32 of what was left and 4,096,
// until the window ends. Requests a second are each node's own affair: behind
// several nodes there may be as many times more.
package quota

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
)

// Rates are limits of use. 0 is no limit.
type Rates struct {
	RequestsPerSecond int64 // to the API; on each node
	Burst             int64 // requests that may come at once; 0: as many as in a second
	SendsPerHour      int64 // messages, whatever their recipients
	SendsPerDay       int64
	RecipientsPerDay  int64
}

// AccountLimits are the limits of an account.
type AccountLimits struct {
	Rates
	// StorageMB is what the quotas of its mailboxes may be together, in
	// megabytes of 1,048,576 bytes.
	StorageMB int64
}

// Defaults are the limits of an account for which the operator set nothing: they
// stop what runs wild, not who has much to send.
func Defaults() AccountLimits {
	return AccountLimits{
		Rates:     Rates{RequestsPerSecond: 2_000, Burst: 20_000, SendsPerHour: 1_000_000, SendsPerDay: 10_000_000, RecipientsPerDay: 20_000_000},
		StorageMB: 10 << 20,
	}
}

// Consumer uses something.
type Consumer struct {
	Account  db.ID
	Key      db.ID // 0 for a mailbox
	KeyRates Rates // the key's own limits, beside the account's
	keyOnly  bool  // only Own counts
}

// These stand in the place of a key. No key has such an id.
const (
	roleMailKey db.ID = 1 + iota
	returnedMailKey
)

// RoleMailConsumer is whom mail to a role address counts for that goes on to the people who own
// the account. Anybody can write there: it takes nothing of what the account may send,
// and has a limit of its own, 100 messages an hour and 500 a day.
func RoleMailConsumer(account db.ID) Consumer {
	return Consumer{Account: account, Key: roleMailKey, KeyRates: Rates{SendsPerHour: 100, SendsPerDay: 500}, keyOnly: true}
}

// ReturnedMailConsumer is whom reports about forwarded mail count for, on their way back to its
// senders. Who got such mail can send any number of them: they take nothing of what the
// account may send, and have a limit of their own, 2,000 an hour and 20,000 a day.
func ReturnedMailConsumer(account db.ID) Consumer {
	return Consumer{Account: account, Key: returnedMailKey, KeyRates: Rates{SendsPerHour: 2_000, SendsPerDay: 20_000}, keyOnly: true}
}

// Limiter counts and judges. Its fields are set before the first use.
type Limiter struct {
	DB       *db.DB
	Events   *event.Log
	Hub      *notify.Hub
	Defaults AccountLimits
	Now      func() time.Time

	mu       sync.Mutex
	accounts map[db.ID]*accountState
}

// accountState is what this node knows of an account, and holds for it.
type accountState struct {
	id     db.ID
	usedAt time.Time  // guarded by Limiter.mu
	drawMu sync.Mutex // of one draw at a time

	mu         sync.Mutex
	limits     AccountLimits
	loaded     bool
	freshUntil time.Time // set is as good as new
	meter      meter
	keys       map[db.ID]*meter
}

// meter counts for an account, or for a key.
type meter struct {
	bucket bucket
	pools  [limitCount]pool
	usedAt time.Time
}

// reloadInterval bounds how long a change of limits that another process made takes to
// be seen should its signal be lost, or never be given.
const reloadInterval = 5 * time.Second

// load finds an account, with its limits.
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
		a.freshUntil = now.Add(reloadInterval) // the others go on with what is known
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
		err = nil // what was known a moment ago will do
	}
	return a, err
}

// Invalidate makes an account's limits be read again; the server calls it when
// another node changed them.
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

// keyMeter is the meter of who's key; nil for one without limits of its own. a.mu is
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
