// SPDX-License-Identifier: Apache-2.0

// Package testkit provides what the tests of many packages need: a clock, a secret key, and the
// rows of an account, a domain and a mailbox.
package testkit

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/secret"
)

// Clock is a clock that stands still until a test advances it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add advances the clock; a negative d sets it back.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Key returns the secret key of all tests.
func Key(t testing.TB) *secret.Key {
	t.Helper()
	key, err := secret.ParseKey(strings.Repeat("0123456789abcdef", 4))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var (
	addAccountQuery = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, '', 'active', 0)`)
	addDomainQuery  = db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at,
		next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		VALUES ($1, $2, $3, 'verified', $4, '', $4, $4, $4, '', 0, 0, 0, 0, 0, 0, 0)`)
	addMailboxQuery = db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, generation, quota,
		status, created_at, deleted_at) VALUES ($1, $2, $3, $4, $4, '', '', 1, $5, 'active', 0, 0)`)
	addUsageQuery = db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) VALUES ($1, 0, 0, 0)`)
)

// AddAccount adds an active account, and returns its id.
func AddAccount(t testing.TB, d *db.DB) db.ID {
	t.Helper()
	id := d.NewID()
	dbtest.Exec(t, d, addAccountQuery.With(id, id.String()+"@accounts.example"))
	return id
}

// AddDomain adds a domain whose records were verified, and returns its id. If owned is false, the
// account has lost it to another.
func AddDomain(t testing.TB, d *db.DB, account db.ID, name string, owned bool) db.ID {
	t.Helper()
	id := d.NewID()
	dbtest.Exec(t, d, addDomainQuery.With(id, account, name, owned))
	return id
}

// AddAccountWithMailbox adds an account with a domain and a mailbox of a quota in bytes, and
// returns the mailbox's id. The mailbox has no folders yet.
func AddAccountWithMailbox(t testing.TB, d *db.DB, quota int64) db.ID {
	t.Helper()
	account, id := AddAccount(t, d), d.NewID()
	domain := AddDomain(t, d, account, id.String()+".example", true)
	dbtest.Exec(t, d, addMailboxQuery.With(id, account, domain, id.String(), quota), addUsageQuery.With(id))
	return id
}
