// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// maxOwners is to how many owners of an account a message is forwarded.
const maxOwners = 10

// isRole reports whether an address is a role address, which every domain has
// (RFC 5321 §4.5.1, RFC 2142).
func isRole(a address.Address) bool {
	switch address.LocalKey(a.Local) {
	case "postmaster", "abuse":
		return true
	}
	return false
}

// isOwn reports whether a domain is one of the host's own names; "" is the host.
func (m *Mailboxes) isOwn(domain string) bool {
	return domain == "" || domain == m.Host || domain == "bounces."+m.Host
}

// operator is the route of mail to the host's own role addresses. It leads to the
// operator's address and nowhere else. What goes elsewhere from there goes in the
// name of the host, which account.Operators stands for.
func (m *Mailboxes) operator(ctx context.Context) (Route, error) {
	to, err := address.Parse(m.Postmaster)
	if err != nil || m.isOwn(to.Domain) {
		return Route{}, noPostmaster()
	}
	_, hosted, err := m.Hosted(ctx, to.Domain)
	if err != nil {
		return Route{}, err
	}
	route := Route{Elsewhere: []address.Address{to}}
	if hosted {
		base, _ := to.Base()
		route, err = m.lookUp(ctx, base, base.Key())
		if err == nil {
			route, err = m.served(ctx, route)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return Route{}, noPostmaster()
	}
	if err == nil && len(route.Elsewhere) > 0 {
		route.Alias, route.Account, route.Domain, route.Role = account.Operators, account.Operators, account.Operators, true
	}
	return route, err
}

// served is a route without the mailboxes of accounts that are suspended.
func (m *Mailboxes) served(ctx context.Context, route Route) (Route, error) {
	var failed error
	route.Mailboxes = slices.DeleteFunc(route.Mailboxes, func(to Recipient) bool {
		active, err := m.Accounts.Active(ctx, to.Account)
		if err != nil {
			failed = err
		}
		return !active
	})
	if failed == nil && len(route.Mailboxes)+len(route.Elsewhere) == 0 {
		failed = suspendedBox()
	}
	return route, failed
}

// role is the route of mail to a role address of a domain that has no mailbox or
// alias of that name: to the domain's first mailbox, else to the account's, else
// to the people who own the account. Nobody else is to read it, since who does can
// prove to certificate authorities that the domain is his.
func (m *Mailboxes) role(ctx context.Context, domain, account db.ID) (Route, error) {
	if route, err := first(ctx, m.db, domain, account); !fault.Is(err, fault.NotFound) {
		return route, err
	}
	if m.Owners == nil {
		return Route{}, noMailbox()
	}
	owners, err := m.Owners(ctx, account)
	if err != nil {
		return Route{}, err
	}
	route := Route{Alias: account, Account: account, Domain: domain, Role: true}
	for _, a := range owners[:min(len(owners), maxOwners)] {
		leads, err := m.leadsBack(ctx, a)
		if err != nil {
			return Route{}, err
		}
		if !leads {
			route.Elsewhere = append(route.Elsewhere, a)
		}
	}
	if len(route.Elsewhere) == 0 {
		return Route{}, noMailbox()
	}
	return route, nil
}

// first is the route to the first mailbox of a domain that takes mail, else of its
// account.
func first(ctx context.Context, from db.Reader, domain, account db.ID) (Route, error) {
	route, err := boxRoute(ctx, from, firstIn.With(domain))
	if fault.Is(err, fault.NotFound) {
		route, err = boxRoute(ctx, from, firstOf.With(account))
	}
	return route, err
}

// PostmasterOf is where Route finds that mail to postmaster of a domain goes, as far
// as mailboxes and aliases tell: without them it is fault.NotFound, and the owners of
// the account get the mail.
func PostmasterOf(ctx context.Context, from db.Reader, domain, account db.ID, name string) (Route, error) {
	route, err := exact(ctx, from, domain, "postmaster@"+name)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		route, err = first(ctx, from, domain, account)
	}
	return route, err
}

// AddressRoute is the route of the mailbox or the alias of an address.
func AddressRoute(ctx context.Context, from db.Reader, domain db.ID, a address.Address) (Route, error) {
	base, _ := a.Base()
	return exact(ctx, from, domain, base.Key())
}

// leadsBack reports whether an owner's address is itself a role address of this
// service, which leads to owners, or to the operator.
func (m *Mailboxes) leadsBack(ctx context.Context, a address.Address) (bool, error) {
	if !isRole(a) || m.isOwn(a.Domain) {
		return m.isOwn(a.Domain), nil
	}
	_, hosted, err := m.Hosted(ctx, a.Domain)
	return hosted, err
}

func noPostmaster() error {
	return fault.New(fault.Unavailable, CodeNoPostmaster, "The postmaster of this service takes no mail now; try again later.")
}
