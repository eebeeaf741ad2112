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

	ForwardTo []address.Address // where its mail goes as well
	KeepCopy  bool              // what goes there is filed here too
	Answers   bool              // it has a Vacation that is enabled
	Filter    SpamFilter
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
	route Route
	until time.Time
}

var (
	recipient = db.SQL(`SELECT id, account, domain, local_part, address, status, forward_to, keep_copy, answers, spam_filter FROM mailbox
		WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	firstOf = db.SQL(`SELECT id, account, domain, local_part, address, status, forward_to, keep_copy, answers, spam_filter FROM mailbox
		WHERE account = $1 AND deleted_at = 0 AND status = 'active' ORDER BY id LIMIT 1`)
	oldest = db.SQL(`SELECT id, account, domain, local_part, address, status, forward_to, keep_copy, answers, spam_filter FROM mailbox
		WHERE id > 0 AND deleted_at = 0 AND status = 'active' ORDER BY id LIMIT 1`)
)

// Resolve finds the mailbox that an address means: its own, whatever the
// plus-tag, else the first that an alias leads to. postmaster and abuse of a
// domain (RFC 5321 §4.5.1, RFC 2142) reach the first mailbox of its account when
// they have none of their own, else the operator, as do postmaster without a
// domain and those of the service's host.
func (m *Mailboxes) Resolve(ctx context.Context, to address.Address) (Recipient, error) {
	route, err := m.Route(ctx, to)
	if err == nil && len(route.Mailboxes) == 0 {
		err = noMailbox()
	}
	if err != nil {
		return Recipient{}, err
	}
	return route.Mailboxes[0], nil
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
func (m *Mailboxes) operator(ctx context.Context) (Route, error) {
	a, err := address.Parse(m.Operator)
	if err != nil {
		return m.one(ctx, oldest.With())
	}
	base, _ := a.Base()
	domain, _, hosted, err := m.Hosted(ctx, base.Domain)
	if err != nil {
		return Route{}, err
	}
	found, err := Route{}, noMailbox()
	if hosted {
		found, err = m.one(ctx, recipient.With(domain, base.Key()))
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return m.one(ctx, oldest.With())
	}
	return found, err
}

func noMailbox() error {
	return fault.New(fault.NotFound, CodeNoMailbox, "There is no mailbox with this address.")
}

func suspendedBox() error {
	return fault.New(fault.Denied, CodeSuspended, "This mailbox takes no mail.")
}

// one is the route to the mailbox that a statement finds.
func (m *Mailboxes) one(ctx context.Context, s db.Statement) (Route, error) {
	var r Recipient
	var local, key, status, forward string
	err := m.db.One(ctx, s, &r.Mailbox, &r.Account, &r.Domain, &local, &key, &status, &forward, &r.KeepCopy, &r.Answers, &r.Filter)
	if errors.Is(err, db.ErrNoRow) {
		return Route{}, noMailbox()
	}
	if err != nil {
		return Route{}, err
	}
	r.Address, r.ForwardTo = shown(local, key), addresses(forward)
	if status != Active {
		return Route{}, suspendedBox()
	}
	return Route{Mailboxes: []Recipient{r}}, nil
}

// remember keeps what was found in known or roomy, unless a mailbox changed
// meanwhile.
func remember[K comparable, V any](m *Mailboxes, in map[K]V, key K, what V, changes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != changes {
		return
	}
	if len(in) >= maxKnown {
		clear(in)
	}
	in[key] = what
}

func (m *Mailboxes) forgetAddresses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	clear(m.known)
	clear(m.roomy)
}
