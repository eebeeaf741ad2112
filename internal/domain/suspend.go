// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	suspendQuery = db.SQL(`UPDATE domain SET suspended_at = $2 WHERE name = $1 AND suspended_at = 0 RETURNING id, account`)
	// Check immediately what the checks skipped during the suspension.
	resumeQuery = db.SQL(`UPDATE domain SET suspended_at = 0, next_check_at = $2 WHERE name = $1 AND suspended_at > 0 RETURNING id, account`)
	activeQuery = db.SQL(`SELECT d.id FROM domain d JOIN account a ON a.id = d.account
		WHERE d.id = $1 AND d.suspended_at = 0 AND a.status = 'active'`)
	suspendedQuery = db.SQL(`SELECT id FROM domain WHERE suspended_at > 0`)
)

// SetSuspended suspends a name or ends its suspension, for all claims on it, on all nodes within
// seconds. Nobody can send from a suspended domain, receive at it, or sign in to its mailboxes.
// Nothing is lost, its records are still checked, and it doesn't change hands. It adds an entry to
// the audit log of each account that claims the name, and returns fault.NotFound if none does.
func (d *Domains) SetSuspended(ctx context.Context, name string, yes bool) error {
	name, err := address.ParseDomain(name)
	if err != nil {
		return notFound()
	}
	set, what := resumeQuery, "Ended the suspension of the domain "+name+"."
	if yes {
		set, what = suspendQuery, "Suspended the domain "+name+"."
	}
	return d.DB.Tx(ctx, func(tx *db.Tx) error {
		if exists, err := db.Exists(ctx, tx, claimantsQuery.With(name)); err != nil || !exists {
			return cmp.Or(err, notFound())
		}
		changed, err := db.All(ctx, tx, set.With(name, db.Micros(d.Now())), func(r db.Row) (h HostedDomain, err error) {
			return h, r.Scan(&h.Domain, &h.Account)
		})
		if err != nil {
			return err
		}
		for _, h := range changed {
			if err := d.Audit.WriteTx(ctx, tx, audit.Entry{
				Account: h.Account, Actor: audit.Actor{Kind: audit.ActorOperator, Name: "operator"}, Action: "suspendDomain", Object: h.Domain.String(), Description: what,
			}); err != nil {
				return err
			}
			tx.AfterCommit(func() {
				d.notifyChanged(h.Domain)
				if yes {
					d.Hub.Wake(notify.Key{Kind: notify.Suspension})
				}
			})
		}
		return nil
	})
}

// OwnerOf returns the owner of a name for operators (Account is 0 if there is none), and whether
// the name is suspended. It returns fault.NotFound if nobody claims it.
func (d *Domains) OwnerOf(ctx context.Context, name string) (HostedDomain, error) {
	name, err := address.ParseDomain(name)
	if err != nil {
		return HostedDomain{}, notFound()
	}
	claims, err := db.All(ctx, d.DB, claimsByNameQuery.With(name), scanClaim)
	if err == nil && len(claims) == 0 {
		err = notFound()
	}
	h := HostedDomain{Name: name}
	for _, c := range claims {
		h.Suspended = h.Suspended || c.suspended()
		if c.owned {
			h.Domain, h.Account, h.Receives = c.id, c.account, c.receives
		}
	}
	return h, err
}

// ActiveCheck returns a row while a domain exists and neither it nor its account is suspended.
func ActiveCheck(id db.ID) db.Statement { return activeQuery.With(id) }

// SuspendedDomains returns the domains that are suspended now.
func SuspendedDomains(ctx context.Context, r db.Reader) (map[db.ID]bool, error) {
	all := map[db.ID]bool{}
	err := r.Each(ctx, suspendedQuery.With(), func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		all[id] = true
		return err
	})
	return all, err
}
