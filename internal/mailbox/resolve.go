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
	// CodeNoPostmaster says that the operator's own address takes no mail now.
	CodeNoPostmaster = "no_postmaster" // fault.Unavailable: 450 4.2.1
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
	firstIn = db.SQL(`SELECT id, account, domain, local_part, address, status, forward_to, keep_copy, answers, spam_filter FROM mailbox
		WHERE (domain, deleted_at) >= ($1, 0) AND (domain, deleted_at) <= ($1, 0) AND status = 'active' ORDER BY domain, deleted_at, id LIMIT 1`)
	firstOf = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.status, m.forward_to, m.keep_copy, m.answers, m.spam_filter FROM mailbox m
		WHERE (m.account, m.deleted_at) >= ($1, 0) AND (m.account, m.deleted_at) <= ($1, 0) AND m.status = 'active' AND (SELECT d.suspended_at FROM domain d WHERE d.id = m.domain) = 0
		ORDER BY m.account, m.deleted_at, m.id LIMIT 1`)
)

// Resolve finds the mailbox that an address means: its own, whatever the
// plus-tag, else the first that an alias leads to. Where mail to role addresses
// goes is told at Role.
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

func noMailbox() error {
	return fault.New(fault.NotFound, CodeNoMailbox, "There is no mailbox with this address.")
}

func suspendedBox() error {
	return fault.New(fault.Denied, CodeSuspended, "This mailbox takes no mail.")
}

// boxRoute is the route to the mailbox that a statement finds.
func boxRoute(ctx context.Context, from db.Reader, s db.Statement) (Route, error) {
	var r Recipient
	var local, key, status, forward string
	err := from.One(ctx, s, &r.Mailbox, &r.Account, &r.Domain, &local, &key, &status, &forward, &r.KeepCopy, &r.Answers, &r.Filter)
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
