// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Recipient is where mail to an address goes.
type Recipient struct {
	Mailbox db.ID
	Account db.ID
	Domain  db.ID
	Address string // the mailbox's own
	Tag     string // what stood after the plus; '' for none
}

// Codes of Resolve's errors.
const (
	CodeNotHosted = "domain_not_hosted" // fault.NotFound: 550 5.7.1 to strangers
	CodeNoMailbox = "no_such_mailbox"   // fault.NotFound: 550 5.1.1
	CodeSuspended = "mailbox_suspended" // fault.Denied: 550 5.2.1
)

const (
	// knownFor bounds how long an address goes to a former mailbox should the
	// signal of another node be lost.
	knownFor = 5 * time.Second
	maxKnown = 100_000
)

// known is what an address was found to mean a moment ago.
type known struct {
	rcpt   Recipient
	status string
	until  time.Time
}

var (
	recipient = db.SQL(`SELECT id, account, domain, local_part, address, status FROM mailbox
		WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	firstOf = db.SQL(`SELECT id, account, domain, local_part, address, status FROM mailbox
		WHERE account = $1 AND deleted_at = 0 AND status = 'active' ORDER BY id LIMIT 1`)
	oldest = db.SQL(`SELECT id, account, domain, local_part, address, status FROM mailbox
		WHERE id > 0 AND deleted_at = 0 AND status = 'active' ORDER BY id LIMIT 1`)
)

// Resolve finds the mailbox that an address means: its own, whatever the
// plus-tag. postmaster and abuse of a domain (RFC 5321 §4.5.1, RFC 2142) reach
// the first mailbox of its account when they have none of their own, else the
// operator, as do postmaster without a domain and those of the service's host.
func (m *Mailboxes) Resolve(ctx context.Context, to address.Address) (Recipient, error) {
	base, tag := to.Base()
	key := base.Key()
	now := m.now()
	m.mu.Lock()
	entry, ok := m.known[key]
	changes := m.changes
	m.mu.Unlock()
	if !ok || !now.Before(entry.until) {
		var err error
		if entry, err = m.lookUp(ctx, base, key); err != nil {
			return Recipient{}, err
		}
		entry.until = now.Add(knownFor)
		m.remember(key, entry, changes)
	}
	if entry.status != Active {
		return Recipient{}, fault.New(fault.Denied, CodeSuspended, "This mailbox takes no mail.")
	}
	entry.rcpt.Tag = tag
	return entry.rcpt, nil
}

func (m *Mailboxes) lookUp(ctx context.Context, base address.Address, key string) (known, error) {
	role := role(base)
	if role && (base.Domain == "" || base.Domain == m.Host) {
		return m.operator(ctx)
	}
	domain, account, hosted, err := m.Hosted(ctx, base.Domain)
	if err != nil {
		return known{}, err
	}
	if !hosted {
		return known{}, fault.New(fault.NotFound, CodeNotHosted, "This domain's mail is not kept here.")
	}
	entry, err := m.one(ctx, recipient.With(domain, key))
	if fault.Is(err, fault.NotFound) && role {
		if entry, err = m.one(ctx, firstOf.With(account)); fault.Is(err, fault.NotFound) {
			return m.operator(ctx)
		}
	}
	return entry, err
}

// role reports whether mail to an address always has somebody who reads it.
func role(a address.Address) bool {
	switch address.LocalKey(a.Local) {
	case "postmaster", "abuse":
		return true
	}
	return false
}

// operator finds the mailbox of whoever runs the service: the one that was set,
// else the oldest, since mail to postmaster is never refused (RFC 5321 §4.5.1).
func (m *Mailboxes) operator(ctx context.Context) (known, error) {
	a, err := address.Parse(m.Operator)
	if err != nil {
		return m.one(ctx, oldest.With())
	}
	base, _ := a.Base()
	domain, _, hosted, err := m.Hosted(ctx, base.Domain)
	if err != nil {
		return known{}, err
	}
	entry, err := known{}, noMailbox()
	if hosted {
		entry, err = m.one(ctx, recipient.With(domain, base.Key()))
	}
	if fault.Is(err, fault.NotFound) || err == nil && entry.status != Active {
		return m.one(ctx, oldest.With())
	}
	return entry, err
}

func noMailbox() error {
	return fault.New(fault.NotFound, CodeNoMailbox, "There is no mailbox with this address.")
}

func (m *Mailboxes) one(ctx context.Context, s db.Statement) (known, error) {
	var k known
	var local, key string
	err := m.db.One(ctx, s, &k.rcpt.Mailbox, &k.rcpt.Account, &k.rcpt.Domain, &local, &key, &k.status)
	if errors.Is(err, db.ErrNoRow) {
		return known{}, noMailbox()
	}
	if err != nil {
		return known{}, err
	}
	k.rcpt.Address = shown(local, key)
	return k, nil
}

// remember keeps what was found, unless a mailbox changed meanwhile. Absence
// is not kept: who makes a mailbox gets mail at once.
func (m *Mailboxes) remember(key string, entry known, changes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != changes {
		return
	}
	if len(m.known) >= maxKnown {
		clear(m.known)
	}
	m.known[key] = entry
}

func (m *Mailboxes) forgetAddresses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	clear(m.known)
}
