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

// maxOwners is the maximum number of an account's owners that a message is forwarded to.
const maxOwners = 10

// isRoleAddress reports whether an address is a role address, which every domain has
// (RFC 5321 §4.5.1, RFC 2142).
func isRoleAddress(a address.Address) bool {
	switch address.LocalKey(a.Local) {
	case "postmaster", "abuse":
		return true
	}
	return false
}

// isHostDomain reports whether a domain is one of the host's own names; "" is the host.
func (m *Mailboxes) isHostDomain(domain string) bool {
	return domain == "" || domain == m.Host || domain == "bounces."+m.Host
}

// operatorRoute returns the route of mail to the host's own role addresses. It leads only to the
// operator's address. Mail forwarded from there is sent in the host's name, as
// account.OperatorAccount.
func (m *Mailboxes) operatorRoute(ctx context.Context) (Route, error) {
	to, err := address.Parse(m.Postmaster)
	if err != nil || m.isHostDomain(to.Domain) {
		return Route{}, noPostmasterError()
	}
	_, hosted, err := m.FindHosted(ctx, to.Domain)
	if err != nil {
		return Route{}, err
	}
	route := Route{Forwards: []address.Address{to}}
	if hosted {
		base, _ := to.SplitTag()
		route, err = m.findRoute(ctx, base, base.Key())
		if err == nil {
			route, err = m.withoutSuspended(ctx, route)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return Route{}, noPostmasterError()
	}
	if err == nil && len(route.Forwards) > 0 {
		route.Forwarder, route.Account, route.Domain, route.RoleMail = account.OperatorAccount, account.OperatorAccount, account.OperatorAccount, true
	}
	return route, err
}

// withoutSuspended returns a route without the mailboxes of suspended accounts.
func (m *Mailboxes) withoutSuspended(ctx context.Context, route Route) (Route, error) {
	var failed error
	route.Mailboxes = slices.DeleteFunc(route.Mailboxes, func(to Recipient) bool {
		active, err := m.Accounts.IsActive(ctx, to.Account)
		if err != nil {
			failed = err
		}
		return !active
	})
	if failed == nil && len(route.Mailboxes)+len(route.Forwards) == 0 {
		failed = mailboxSuspendedError()
	}
	return route, failed
}

// roleRoute returns the route of mail to a role address of a domain without a mailbox or alias of
// that name. It leads to the domain's first mailbox, else to the account's first, else to the
// owners of the account. Nobody else may receive it, because mail to a role address can prove
// ownership of the domain to certificate authorities.
func (m *Mailboxes) roleRoute(ctx context.Context, domain, account db.ID) (Route, error) {
	if route, err := firstMailboxRoute(ctx, m.db, domain, account); !fault.Is(err, fault.NotFound) {
		return route, err
	}
	if m.OwnerAddresses == nil {
		return Route{}, noMailboxError()
	}
	owners, err := m.OwnerAddresses(ctx, account)
	if err != nil {
		return Route{}, err
	}
	route := Route{Forwarder: account, Account: account, Domain: domain, RoleMail: true}
	for _, a := range owners[:min(len(owners), maxOwners)] {
		leads, err := m.isServiceRole(ctx, a)
		if err != nil {
			return Route{}, err
		}
		if !leads {
			route.Forwards = append(route.Forwards, a)
		}
	}
	if len(route.Forwards) == 0 {
		return Route{}, noMailboxError()
	}
	return route, nil
}

// firstMailboxRoute returns the route to the first mailbox of a domain that can receive mail, else
// of its account.
func firstMailboxRoute(ctx context.Context, from db.Reader, domain, account db.ID) (Route, error) {
	route, err := mailboxRoute(ctx, from, firstInDomainQuery.With(domain))
	if fault.Is(err, fault.NotFound) {
		route, err = mailboxRoute(ctx, from, firstInAccountQuery.With(account))
	}
	return route, err
}

// PostmasterRoute returns the route of mail to postmaster of a domain, considering only mailboxes
// and aliases. Without any it returns fault.NotFound, and Route leads to the owners of the account.
func PostmasterRoute(ctx context.Context, from db.Reader, domain, account db.ID, name string) (Route, error) {
	route, err := exactRoute(ctx, from, domain, "postmaster@"+name)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		route, err = firstMailboxRoute(ctx, from, domain, account)
	}
	return route, err
}

// AddressRoute returns the route of the mailbox or the alias of an address.
func AddressRoute(ctx context.Context, from db.Reader, domain db.ID, a address.Address) (Route, error) {
	base, _ := a.SplitTag()
	return exactRoute(ctx, from, domain, base.Key())
}

// isServiceRole reports whether an owner's address is itself a role address of this service, which
// would lead to owners or to the operator again.
func (m *Mailboxes) isServiceRole(ctx context.Context, a address.Address) (bool, error) {
	if !isRoleAddress(a) || m.isHostDomain(a.Domain) {
		return m.isHostDomain(a.Domain), nil
	}
	_, hosted, err := m.FindHosted(ctx, a.Domain)
	return hosted, err
}

func noPostmasterError() error {
	return fault.New(fault.Unavailable, CodeNoPostmaster, "The postmaster of this service takes no mail now; try again later.")
}
