// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Recipient is a mailbox that receives mail to an address.
type Recipient struct {
	Mailbox db.ID
	Account db.ID
	Domain  db.ID
	Address string // address of the mailbox itself
	Tag     string // the part after the plus; "" for none

	ForwardTo   []address.Address // additional forwarding addresses
	KeepCopy    bool              // forwarded mail is also stored here
	HasVacation bool              // it has an enabled Vacation
	SpamFilter  SpamFilter
}

// Codes of Resolve's errors.
const (
	CodeDomainNotHosted  = "domain_not_hosted" // fault.NotFound: 550 5.7.1 to unauthenticated clients
	CodeNoMailbox        = "no_such_mailbox"   // fault.NotFound: 550 5.1.1
	CodeMailboxSuspended = "mailbox_suspended" // fault.Denied: 550 5.2.1
	// CodeNoPostmaster means that the operator's own address can't receive mail now.
	CodeNoPostmaster = "no_postmaster" // fault.Unavailable: 450 4.2.1
)

const (
	// routeCacheTTL limits how long mail goes to a former mailbox of an address if the notification
	// of another node is lost.
	routeCacheTTL   = 5 * time.Second
	maxCachedRoutes = 100_000
)

// cachedRoute is the recent result of resolving an address.
type cachedRoute struct {
	route     Route
	expiresAt time.Time
}

// recipientColumns are the columns that mailboxRoute scans.
const recipientColumns = `id, account, domain, local_part, address, status, forward_to, keep_copy, auto_reply, spam_filter`

var (
	recipientQuery = db.SQL(`SELECT ` + recipientColumns + ` FROM mailbox
		WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	firstInDomainQuery = db.SQL(`SELECT ` + recipientColumns + ` FROM mailbox
		WHERE (domain, deleted_at) >= ($1, 0) AND (domain, deleted_at) <= ($1, 0) AND status = 'active' ORDER BY domain, deleted_at, id LIMIT 1`)
	firstInAccountQuery = db.SQL(`SELECT ` + recipientColumns + ` FROM mailbox m
		WHERE (m.account, m.deleted_at) >= ($1, 0) AND (m.account, m.deleted_at) <= ($1, 0) AND m.status = 'active' AND (SELECT d.suspended_at FROM domain d WHERE d.id = m.domain) = 0
		ORDER BY m.account, m.deleted_at, m.id LIMIT 1`)
)

// Resolve finds the mailbox for an address: its own, ignoring the plus-tag, else the first that an
// alias leads to. Route says where mail to role addresses goes.
func (m *Mailboxes) Resolve(ctx context.Context, to address.Address) (Recipient, error) {
	route, err := m.Route(ctx, to)
	if err == nil && len(route.Mailboxes) == 0 {
		err = noMailboxError()
	}
	if err != nil {
		return Recipient{}, err
	}
	return route.Mailboxes[0], nil
}

func noMailboxError() error {
	return fault.New(fault.NotFound, CodeNoMailbox, "There is no mailbox with this address.")
}

func mailboxSuspendedError() error {
	return fault.New(fault.Denied, CodeMailboxSuspended, "This mailbox takes no mail.")
}

// mailboxRoute returns the route to the mailbox that a statement finds.
func mailboxRoute(ctx context.Context, from db.Reader, s db.Statement) (Route, error) {
	var r Recipient
	var local, key, status, forward string
	err := from.One(ctx, s, &r.Mailbox, &r.Account, &r.Domain, &local, &key, &status, &forward, &r.KeepCopy, &r.HasVacation, &r.SpamFilter)
	if err != nil {
		return Route{}, db.IfNoRow(err, noMailboxError())
	}
	r.Address, r.ForwardTo = displayAddress(local, key), splitForwards(forward)
	if status != StatusActive {
		return Route{}, mailboxSuspendedError()
	}
	return Route{Mailboxes: []Recipient{r}}, nil
}

// cacheUnlessChanged stores a result in routeCache or ampleUntil, unless a mailbox changed
// meanwhile.
func cacheUnlessChanged[K comparable, V any](m *Mailboxes, in map[K]V, key K, what V, changes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changeCount != changes {
		return
	}
	if len(in) >= maxCachedRoutes {
		clear(in)
	}
	in[key] = what
}

func (m *Mailboxes) clearRouteCache() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changeCount++
	clear(m.routeCache)
	clear(m.ampleUntil)
}
