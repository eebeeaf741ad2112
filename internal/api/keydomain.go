// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
)

// A key may be restricted to one domain. It can't see anything of other domains.

var errDomainRestricted = fault.New(fault.Denied, "domain_restricted", "This API key acts for one domain only.")

// keyDomain returns the domain of a restricted key, and false if the account has no such domain.
func (a *API) keyDomain(ctx context.Context, p account.Principal) (domain.Domain, bool, error) {
	at := db.Page{Limit: db.MaxPageSize}
	for {
		domains, more, err := a.Domains.List(ctx, p.Account, at)
		if err != nil {
			return domain.Domain{}, false, err
		}
		for _, d := range domains {
			if d.Name == p.Domain {
				return d, true, nil
			}
			at.After = d.ID
		}
		if !more {
			return domain.Domain{}, false, nil
		}
	}
}

// keyDomainID returns the id of a restricted key's domain, 0 for an unrestricted key, and false if
// the account has no such domain.
func (a *API) keyDomainID(ctx context.Context, p account.Principal) (db.ID, bool, error) {
	if p.Domain == "" {
		return 0, true, nil
	}
	d, ok, err := a.keyDomain(ctx, p)
	return d.ID, ok, err
}

// sentMessage returns a sent message that the principal may see. A restricted key sees the messages
// that its domain sent or forwarded, independent of their From.
func (a *API) sentMessage(ctx context.Context, p account.Principal, id db.ID) (outbound.Message, error) {
	m, err := a.Outbox.Get(ctx, p.Account, id)
	if err != nil {
		return m, err
	}
	only, ok, err := a.keyDomainID(ctx, p)
	if err == nil && (!ok || only != 0 && only != m.Domain) {
		err = errNotFound
	}
	return m, err
}

// apiKey returns an API key that the principal may see. A restricted key sees the keys of its
// domain.
func (a *API) apiKey(ctx context.Context, p account.Principal, id db.ID) (account.Key, error) {
	found, _, err := a.Accounts.Keys(ctx, p.Account, db.Page{After: id + 1, Limit: 1})
	if err != nil {
		return account.Key{}, err
	}
	if len(found) == 0 || found[0].ID != id || p.Domain != "" && found[0].Domain != p.Domain {
		return account.Key{}, errNotFound
	}
	return found[0], nil
}
