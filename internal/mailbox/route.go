// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Route is where mail to an address goes: at least one mailbox or forwarding address.
type Route struct {
	Mailboxes []Recipient       // active mailboxes, without duplicates
	Forwards  []address.Address // forwarding addresses, without duplicates
	Forwarder db.ID             // the alias that forwards, of the account and domain below; for role mail the account
	Account   db.ID
	Domain    db.ID
	RoleMail  bool // from a role address to the owners of the account, or to the operator
}

// aliasTargetsQuery has a row for each target of the alias of an address. The row of a deleted
// mailbox has empty columns.
var aliasTargetsQuery = db.SQL(`SELECT COALESCE(m.id, 0), COALESCE(m.account, 0), COALESCE(m.domain, 0), COALESCE(m.local_part, ''),
		COALESCE(m.address, ''), CASE WHEN d.suspended_at > 0 THEN 'suspended' ELSE COALESCE(m.status, '') END, COALESCE(m.forward_to, ''), COALESCE(m.keep_copy, TRUE), COALESCE(m.auto_reply, FALSE),
		COALESCE(m.spam_filter, ''), t.address, a.id, a.account
	FROM alias a JOIN alias_target t ON t.alias = a.id LEFT JOIN mailbox m ON m.id = t.mailbox AND m.deleted_at = 0
		LEFT JOIN domain d ON d.id = m.domain
	WHERE a.domain = $1 AND a.address = $2 ORDER BY t.n`)

// Route finds where mail to an address goes: to its own mailbox, else to its alias's targets, else
// to the catch-all's. Mail to a role address (postmaster, abuse) of a domain goes to mailboxes of
// the domain's account, or to its owners, before a catch-all. Mail to a role address of the host
// goes to the operator. It returns fault.NotFound (CodeDomainNotHosted, CodeNoMailbox) if there is
// no recipient, fault.Denied (CodeMailboxSuspended) if all recipients are suspended, and
// fault.Unavailable (CodeNoPostmaster) while the operator has no mailbox.
func (m *Mailboxes) Route(ctx context.Context, to address.Address) (Route, error) {
	base, tag := to.SplitTag()
	key := base.Key()
	now := m.now()
	m.mu.Lock()
	entry, ok := m.routeCache[key]
	changes := m.changeCount
	m.mu.Unlock()
	if !ok || !now.Before(entry.expiresAt) {
		route, err := m.findRoute(ctx, base, key)
		if err != nil {
			return Route{}, err
		}
		// A missing address isn't cached, so that a new mailbox receives mail immediately.
		entry = cachedRoute{route, now.Add(routeCacheTTL)}
		cacheUnlessChanged(m, m.routeCache, key, entry, changes)
	}
	route := entry.route
	route.Mailboxes = slices.Clone(route.Mailboxes)
	for i := range route.Mailboxes {
		route.Mailboxes[i].Tag = tag
	}
	return route, nil
}

func (m *Mailboxes) findRoute(ctx context.Context, base address.Address, key string) (Route, error) {
	if isRoleAddress(base) && m.isHostDomain(base.Domain) {
		return m.operatorRoute(ctx)
	}
	h, hosted, err := m.FindHosted(ctx, base.Domain)
	if err != nil {
		return Route{}, err
	}
	if !hosted {
		return Route{}, fault.New(fault.NotFound, CodeDomainNotHosted, "This domain's mail is not kept here.")
	}
	if h.Suspended {
		return Route{}, fault.New(fault.Denied, CodeMailboxSuspended, "This domain takes no mail.")
	}
	route, err := exactRoute(ctx, m.db, h.Domain, key)
	if isRoleAddress(base) && (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied)) {
		return m.roleRoute(ctx, h.Domain, h.Account)
	}
	if fault.Is(err, fault.NotFound) {
		route, err = aliasRoute(ctx, m.db, h.Domain, CatchAll+"@"+base.Domain)
	}
	return route, err
}

// exactRoute returns the route to the mailbox or the alias of an address.
func exactRoute(ctx context.Context, from db.Reader, domain db.ID, key string) (Route, error) {
	route, err := mailboxRoute(ctx, from, recipientQuery.With(domain, key))
	if fault.Is(err, fault.NotFound) {
		route, err = aliasRoute(ctx, from, domain, key)
	}
	return route, err
}

// aliasRoute returns the route of an alias.
func aliasRoute(ctx context.Context, from db.Reader, domain db.ID, key string) (Route, error) {
	route := Route{Domain: domain}
	suspended := false
	_, err := db.All(ctx, from, aliasTargetsQuery.With(domain, key), func(r db.Row) (none struct{}, err error) {
		var to Recipient
		var local, own, status, forward, elsewhere string
		if err := r.Scan(&to.Mailbox, &to.Account, &to.Domain, &local, &own, &status, &forward, &to.KeepCopy, &to.HasVacation, &to.SpamFilter,
			&elsewhere, &route.Forwarder, &route.Account); err != nil {
			return none, err
		}
		switch status {
		case StatusActive:
			to.Address, to.ForwardTo = displayAddress(local, own), splitForwards(forward)
			route.Mailboxes = append(route.Mailboxes, to)
		case StatusSuspended:
			suspended = true
		}
		if a, err := address.Parse(elsewhere); err == nil {
			route.Forwards = append(route.Forwards, a)
		}
		return none, nil
	})
	switch {
	case err != nil:
		return Route{}, err
	case len(route.Mailboxes)+len(route.Forwards) > 0:
		return route, nil
	case suspended:
		return Route{}, mailboxSuspendedError()
	}
	return Route{}, noMailboxError()
}

// MaySendAs reports whether a mailbox may send as an address: its own, one of its plus-addresses,
// or an alias that leads to it. A catch-all covers the addresses that it receives mail for: those
// that no one else has.
func (m *Mailboxes) MaySendAs(ctx context.Context, box Mailbox, a address.Address) (bool, error) {
	own, err := address.Parse(box.Address)
	if err != nil {
		return false, err
	}
	base, _ := a.SplitTag()
	if base.Key() == own.Key() {
		return true, nil
	}
	h, hosted, err := m.FindHosted(ctx, base.Domain)
	if err != nil || !hosted || h.Account != box.Account {
		return false, err
	}
	domain := h.Domain
	if ok, err := db.Exists(ctx, m.db, aliasLeadsToQuery.With(domain, base.Key(), box.ID)); ok || err != nil {
		return ok, err
	}
	for _, others := range []db.Statement{mailboxAtQuery.With(domain, base.Key()), aliasByAddressQuery.With(domain, base.Key())} {
		if taken, err := db.Exists(ctx, m.db, others); taken || err != nil {
			return false, err
		}
	}
	if isRoleAddress(base) {
		return false, nil
	}
	return db.Exists(ctx, m.db, aliasLeadsToQuery.With(domain, CatchAll+"@"+base.Domain, box.ID))
}
