// SPDX-License-Identifier: Apache-2.0

// Package limit keeps how much an account, and each of its keys, may use:
// requests a second, messages an hour and a day, recipients a day, storage.
//
// Hours and days are those of UTC, and are counted over all nodes: a node draws
// a block of what is left from a row and spends it in memory, so that a send
// usually asks no database. A limit is never exceeded. What a node has drawn and
// did not spend it gives back when it has lain a few seconds, and at its end; a
// node that crashes loses that much, at most 1/32 of what was left and 4,096,
// until the window ends. Requests a second are each node's own affair: behind
// several nodes there may be as many times more.
package limit

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/signal"
)

// Rates are limits of use. 0 is no limit.
type Rates struct {
	RequestsPerSecond int64 // to the API; on each node
	Burst             int64 // requests that may come at once; 0: as many as in a second
	SendsPerHour      int64 // messages, whatever their recipients
	SendsPerDay       int64
	RecipientsPerDay  int64
}

// Set are the limits of an account.
type Set struct {
	Rates
	// StorageMB is what the quotas of its mailboxes may be together, in
	// megabytes of 1,048,576 bytes.
	StorageMB int64
}

// Defaults are the limits of an account for which the operator set nothing: they
// stop what runs wild, not who has much to send.
func Defaults() Set {
	return Set{
		Rates:     Rates{RequestsPerSecond: 2_000, Burst: 20_000, SendsPerHour: 1_000_000, SendsPerDay: 10_000_000, RecipientsPerDay: 20_000_000},
		StorageMB: 10 << 20,
	}
}

// Who uses something.
type Who struct {
	Account db.ID
	Key     db.ID // 0 for a mailbox
	Own     Rates // the key's own limits, beside the account's
	apart   bool  // only Own counts
}

// These stand in the place of a key. No key has such an id.
const (
	roleMail db.ID = 1 + iota
	returnedMail
)

// RoleMail is whom mail to a role address counts for that goes on to the people who own
// the account. Anybody can write there: it takes nothing of what the account may send,
// and has a limit of its own, 100 messages an hour and 500 a day.
func RoleMail(account db.ID) Who {
	return Who{Account: account, Key: roleMail, Own: Rates{SendsPerHour: 100, SendsPerDay: 500}, apart: true}
}

// ReturnedMail is whom reports about forwarded mail count for, on their way back to its
// senders. Who got such mail can send any number of them: they take nothing of what the
// account may send, and have a limit of their own, 2,000 an hour and 20,000 a day.
func ReturnedMail(account db.ID) Who {
	return Who{Account: account, Key: returnedMail, Own: Rates{SendsPerHour: 2_000, SendsPerDay: 20_000}, apart: true}
}

// Limits counts and judges. Its fields are set before the first use.
type Limits struct {
	DB       *db.DB
	Events   *event.Log
	Hub      *signal.Hub
	Defaults Set
	Now      func() time.Time

	mu       sync.Mutex
	accounts map[db.ID]*account
}

// account is what this node knows of an account, and holds for it.
type account struct {
	id      db.ID
	seen    time.Time  // guarded by Limits.mu
	drawing sync.Mutex // of one draw at a time

	mu     sync.Mutex
	set    Set
	loaded bool
	until  time.Time // set is as good as new
	own    meter
	keys   map[db.ID]*meter
}

// meter counts for an account, or for a key.
type meter struct {
	bucket bucket
	pools  [names]pool
	seen   time.Time
}

// settle bounds how long a change of limits that another process made takes to
// be seen should its signal be lost, or never be given.
const settle = 5 * time.Second

// account finds an account, with its limits.
func (l *Limits) account(ctx context.Context, id db.ID) (*account, error) {
	now := l.Now()
	l.mu.Lock()
	a := l.accounts[id]
	if a == nil {
		if l.accounts == nil {
			l.accounts = map[db.ID]*account{}
		}
		a = &account{id: id, keys: map[db.ID]*meter{}}
		l.accounts[id] = a
	}
	a.seen = now
	l.mu.Unlock()

	a.mu.Lock()
	loaded, current := a.loaded, now.Before(a.until)
	if loaded && !current {
		a.until = now.Add(settle) // the others go on with what is known
	}
	a.mu.Unlock()
	if loaded && current {
		return a, nil
	}
	set, err := l.Account(ctx, id)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.set, a.loaded, a.until = set, true, now.Add(settle)
	case a.loaded:
		err = nil // what was known a moment ago will do
	}
	return a, err
}

// Forget makes an account's limits be read again; the server calls it when
// another node changed them.
func (l *Limits) Forget(id db.ID) {
	l.mu.Lock()
	a := l.accounts[id]
	l.mu.Unlock()
	if a != nil {
		a.mu.Lock()
		a.until = time.Time{}
		a.mu.Unlock()
	}
}

// key is the meter of who's key; nil for one without limits of its own. a.mu is
// held.
func (a *account) key(w Who, now time.Time) *meter {
	if w.Key == 0 || w.Own == (Rates{}) {
		return nil
	}
	m := a.keys[w.Key]
	if m == nil {
		m = &meter{}
		a.keys[w.Key] = m
	}
	m.seen = now
	return m
}
