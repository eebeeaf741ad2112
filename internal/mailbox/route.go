// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Route is where mail to an address goes: to one place at least.
type Route struct {
	Mailboxes []Recipient       // active ones, each once
	Elsewhere []address.Address // to be forwarded to, each once
	Alias     db.ID             // that leads elsewhere, of the account and domain below; of role mail the account
	Account   db.ID
	Domain    db.ID
	Role      bool // it leads from a role address to the owners of the account, or the operator
}

// aliasTargets has a row for each target of the alias of an address. Of a
// mailbox that is deleted all is empty.
var aliasTargets = db.SQL(`SELECT COALESCE(m.id, 0), COALESCE(m.account, 0), COALESCE(m.domain, 0), COALESCE(m.local_part, ''),
		COALESCE(m.address, ''), CASE WHEN d.suspended_at > 0 THEN 'suspended' ELSE COALESCE(m.status, '') END, COALESCE(m.forward_to, ''), COALESCE(m.keep_copy, TRUE), COALESCE(m.answers, FALSE),
		COALESCE(m.spam_filter, ''), t.address, a.id, a.account
	FROM alias a JOIN alias_target t ON t.alias = a.id LEFT JOIN mailbox m ON m.id = t.mailbox AND m.deleted_at = 0
		LEFT JOIN domain d ON d.id = m.domain
	WHERE a.domain = $1 AND a.address = $2 ORDER BY t.n`)

// Route finds where mail to an address goes: to its own mailbox, else where its
// alias leads, else where a catch-all does. A role address (postmaster, abuse) of a
// domain has mailboxes of the domain's account, or its owners, before a catch-all;
// one of the host has the operator. Nowhere is fault.NotFound (CodeNotHosted,
// CodeNoMailbox), fault.Denied (CodeSuspended) where all that would take it are
// suspended, and fault.Unavailable (CodeNoPostmaster) while the operator has no
// mailbox.
func (m *Mailboxes) Route(ctx context.Context, to address.Address) (Route, error) {
	base, tag := to.Base()
	key := base.Key()
	now := m.now()
	m.mu.Lock()
	entry, ok := m.known[key]
	changes := m.changes
	m.mu.Unlock()
	if !ok || !now.Before(entry.until) {
		route, err := m.lookUp(ctx, base, key)
		if err != nil {
			return Route{}, err
		}
		// That there is nobody is not kept: who makes a mailbox gets mail at once.
		entry = known{route, now.Add(knownFor)}
		remember(m, m.known, key, entry, changes)
	}
	route := entry.route
	route.Mailboxes = slices.Clone(route.Mailboxes)
	for i := range route.Mailboxes {
		route.Mailboxes[i].Tag = tag
	}
	return route, nil
}

func (m *Mailboxes) lookUp(ctx context.Context, base address.Address, key string) (Route, error) {
	if isRole(base) && m.isOwn(base.Domain) {
		return m.operator(ctx)
	}
	h, hosted, err := m.Hosted(ctx, base.Domain)
	if err != nil {
		return Route{}, err
	}
	if !hosted {
		return Route{}, fault.New(fault.NotFound, CodeNotHosted, "This domain's mail is not kept here.")
	}
	if h.Suspended {
		return Route{}, fault.New(fault.Denied, CodeSuspended, "This domain takes no mail.")
	}
	route, err := exact(ctx, m.db, h.Domain, key)
	if isRole(base) && (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied)) {
		return m.role(ctx, h.Domain, h.Account)
	}
	if fault.Is(err, fault.NotFound) {
		route, err = aliased(ctx, m.db, h.Domain, CatchAll+"@"+base.Domain)
	}
	return route, err
}

// exact is the route to the mailbox or the alias of an address.
func exact(ctx context.Context, from db.Reader, domain db.ID, key string) (Route, error) {
	route, err := boxRoute(ctx, from, recipient.With(domain, key))
	if fault.Is(err, fault.NotFound) {
		route, err = aliased(ctx, from, domain, key)
	}
	return route, err
}

// aliased finds where the alias of an address leads.
func aliased(ctx context.Context, from db.Reader, domain db.ID, key string) (Route, error) {
	route := Route{Domain: domain}
	suspended := false
	_, err := db.All(ctx, from, aliasTargets.With(domain, key), func(r db.Row) (none struct{}, err error) {
		var to Recipient
		var local, own, status, forward, elsewhere string
		if err := r.Scan(&to.Mailbox, &to.Account, &to.Domain, &local, &own, &status, &forward, &to.KeepCopy, &to.Answers, &to.Filter,
			&elsewhere, &route.Alias, &route.Account); err != nil {
			return none, err
		}
		switch status {
		case Active:
			to.Address, to.ForwardTo = shown(local, own), addresses(forward)
			route.Mailboxes = append(route.Mailboxes, to)
		case Suspended:
			suspended = true
		}
		if a, err := address.Parse(elsewhere); err == nil {
			route.Elsewhere = append(route.Elsewhere, a)
		}
		return none, nil
	})
	switch {
	case err != nil:
		return Route{}, err
	case len(route.Mailboxes)+len(route.Elsewhere) > 0:
		return route, nil
	case suspended:
		return Route{}, suspendedBox()
	}
	return Route{}, noMailbox()
}

// MayUse reports whether a mailbox may send as an address: its own, one of its
// plus-addresses, or one that an alias leads from to it. A catch-all counts for
// what it would take: addresses that nobody else has.
func (m *Mailboxes) MayUse(ctx context.Context, box Mailbox, a address.Address) (bool, error) {
	own, err := address.Parse(box.Address)
	if err != nil {
		return false, err
	}
	base, _ := a.Base()
	if base.Key() == own.Key() {
		return true, nil
	}
	h, hosted, err := m.Hosted(ctx, base.Domain)
	if err != nil || !hosted || h.Account != box.Account {
		return false, err
	}
	domain := h.Domain
	if ok, err := m.any(ctx, leadsTo.With(domain, base.Key(), box.ID)); ok || err != nil {
		return ok, err
	}
	for _, others := range []db.Statement{boxAt.With(domain, base.Key()), aliasAddress.With(domain, base.Key())} {
		if taken, err := m.any(ctx, others); taken || err != nil {
			return false, err
		}
	}
	if isRole(base) {
		return false, nil
	}
	return m.any(ctx, leadsTo.With(domain, CatchAll+"@"+base.Domain, box.ID))
}

// any reports whether a statement finds something.
func (m *Mailboxes) any(ctx context.Context, s db.Statement) (bool, error) {
	err := m.db.One(ctx, s, new(db.ID))
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}
