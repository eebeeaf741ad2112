// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
)

var (
	suspendName = db.SQL(`UPDATE domain SET suspended_at = $2 WHERE name = $1 AND suspended_at = 0 RETURNING id, account`)
	// What its checks left is looked at again at once.
	resumeName   = db.SQL(`UPDATE domain SET suspended_at = 0, next_check_at = $2 WHERE name = $1 AND suspended_at > 0 RETURNING id, account`)
	notSuspended = db.SQL(`SELECT d.id FROM domain d JOIN account a ON a.id = d.account
		WHERE d.id = $1 AND d.suspended_at = 0 AND a.status = 'active'`)
	suspended = db.SQL(`SELECT id FROM domain WHERE suspended_at > 0`)
)

// Suspend suspends a name, or ends that: for whoever claims it, on all nodes within
// seconds. Nobody sends from a suspended domain, receives at it or signs in to a
// mailbox of it; nothing of it is lost, its records are still checked, and it changes
// no hands. It returns the claims that it changed, and fault.NotFound if nobody claims
// the name.
func (d *Domains) Suspend(ctx context.Context, name string, yes bool) (changed []Hosted, err error) {
	none := fault.New(fault.NotFound, "not_found", "There is no such domain.")
	if name, err = address.Domain(name); err != nil {
		return nil, none
	}
	set := resumeName
	if yes {
		set = suspendName
	}
	err = d.DB.Tx(ctx, func(tx *db.Tx) error {
		claims, err := db.All(ctx, tx, claimants.With(name), func(r db.Row) (id db.ID, err error) {
			err = r.Scan(&id, new(db.ID))
			return id, err
		})
		if err == nil && len(claims) == 0 {
			err = none
		}
		if err != nil {
			return err
		}
		changed, err = db.All(ctx, tx, set.With(name, db.Micros(d.Now())), func(r db.Row) (h Hosted, err error) {
			err = r.Scan(&h.Domain, &h.Account)
			h.Name, h.Suspended = name, yes
			return h, err
		})
		for _, h := range changed {
			tx.AfterCommit(func() {
				d.changed(h.Domain)
				if yes {
					d.Hub.Wake(signal.Key{Kind: signal.Suspension})
				}
			})
		}
		return err
	})
	return changed, err
}

// Standing tells operators who holds a name (Account is 0 for nobody), and whether it
// is suspended. It is fault.NotFound if nobody claims it.
func (d *Domains) Standing(ctx context.Context, name string) (Hosted, error) {
	none := fault.New(fault.NotFound, "not_found", "There is no such domain.")
	name, err := address.Domain(name)
	if err != nil {
		return Hosted{}, none
	}
	claims, err := db.All(ctx, d.DB, claimsOn.With(name), scanClaim)
	if err == nil && len(claims) == 0 {
		err = none
	}
	h := Hosted{Name: name}
	for _, c := range claims {
		h.Suspended = h.Suspended || c.suspended()
		if c.held {
			h.Domain, h.Account, h.Receives = c.id, c.account, c.receives
		}
	}
	return h, err
}

// InUse returns a row while a domain is there, and neither it nor its account is
// suspended.
func InUse(id db.ID) db.Statement { return notSuspended.With(id) }

// SuspendedDomains are the domains that are suspended now.
func SuspendedDomains(ctx context.Context, r db.Reader) (map[db.ID]bool, error) {
	all := map[db.ID]bool{}
	err := r.Each(ctx, suspended.With(), func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		all[id] = true
		return err
	})
	return all, err
}
