// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// claim is a row: an account's claim on a name, with the results of checks.
type claim struct {
	id, account db.ID
	name        string
	token       string
	claimState
	observations observations
	checks       int64
	rotationDays int64 // days after which DKIM keys are replaced; 0 for never

	dmarcEnforcement Enforcement
	spamFiltering    Enforcement
	sts              STSMode

	checkedAt, nextCheckAt, mismatchSince, verifiedAt, createdAt time.Time

	suspendedAt time.Time // by an operator; zero if not suspended
}

func (c *claim) suspended() bool { return !c.suspendedAt.IsZero() }

func errSuspended() error {
	return fault.New(fault.Denied, "domain_suspended", "This domain is suspended. Ask the operator of the service.")
}

// claimState is the part of a claim that other components depend on.
type claimState struct {
	status         string
	owned          bool
	receives       bool
	sends          bool
	aligned        bool
	contestedSince time.Time
}

// domainColumns are the columns that a domain is scanned from.
const domainColumns = `id, account, name, status, owned, token, receives, sends, aligned, records, checks,
			checked_at, next_check_at, mismatch_since, contested_since, verified_at, created_at, dkim_rotation_days, dmarc_enforcement, spam_filtering, mta_sts, suspended_at`

var (
	insertDomainQuery = db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records,
			checked_at, next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		VALUES ($1, $2, $3, 'pending', FALSE, $4, FALSE, FALSE, FALSE, '', 0, $5, 0, 0, 0, 0, $6)`)
	claimExistsQuery    = db.SQL(`SELECT id FROM domain WHERE account = $1 AND name = $2`)
	accountDomainQuery  = db.SQL(`SELECT ` + domainColumns + ` FROM domain WHERE id = $1 AND account = $2`)
	domainByIDQuery     = db.SQL(`SELECT ` + domainColumns + ` FROM domain WHERE id = $1`)
	claimsByNameQuery   = db.SQL(`SELECT ` + domainColumns + ` FROM domain WHERE name = $1 ORDER BY id`)
	lockClaimsQuery     = db.SQL(`SELECT ` + domainColumns + ` FROM domain WHERE name = $1 ORDER BY id {for_update}`)
	accountDomainsQuery = db.PagedSQL(`SELECT ` + domainColumns + ` FROM domain WHERE {page account = $1}`)
	// Unordered: ordering by k.id would scan all keys to find one.
	keysInRangeQuery = db.SQL(`SELECT ` + keyColumns + ` FROM domain d CROSS JOIN dkim_key k
		WHERE k.domain = d.id AND d.account = $1 AND d.id >= $2 AND d.id <= $3`)
	lockDomainQuery   = db.SQL(`SELECT suspended_at FROM domain WHERE id = $1 AND account = $2 {for_update}`)
	deleteDomainQuery = db.SQL(`DELETE FROM domain WHERE id = $1 AND account = $2`)
)

func scanClaim(r db.Row) (*claim, error) {
	var c claim
	var records string
	err := r.Scan(&c.id, &c.account, &c.name, &c.status, &c.owned, &c.token, &c.receives, &c.sends, &c.aligned, &records,
		&c.checks, db.TimeScanner(&c.checkedAt), db.TimeScanner(&c.nextCheckAt), db.TimeScanner(&c.mismatchSince), db.TimeScanner(&c.contestedSince), db.TimeScanner(&c.verifiedAt), db.TimeScanner(&c.createdAt), &c.rotationDays, &c.dmarcEnforcement, &c.spamFiltering, &c.sts, db.TimeScanner(&c.suspendedAt))
	if err != nil {
		return nil, err
	}
	c.observations, err = parseObservations(records)
	return &c, err
}

// findClaim reads one claim, or returns fault.NotFound.
func findClaim(ctx context.Context, r db.Reader, s db.Statement) (*claim, error) {
	return db.Find(ctx, r, s, notFound(), scanClaim)
}

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such domain.") }

// Get finds a domain of an account, or returns fault.NotFound.
func (d *Domains) Get(ctx context.Context, account, id db.ID) (Domain, error) {
	c, err := findClaim(ctx, d.DB, accountDomainQuery.With(id, account))
	if err != nil {
		return Domain{}, err
	}
	keys, err := db.All(ctx, d.DB, domainKeysQuery.With(id), scanKey)
	if err != nil {
		return Domain{}, err
	}
	return d.toDomain(c, keys), nil
}

// IDByName finds the domain that an account has under a name, or returns fault.NotFound.
func (d *Domains) IDByName(ctx context.Context, account db.ID, name string) (id db.ID, err error) {
	if name, err = address.ParseDomain(name); err != nil {
		return 0, notFound()
	}
	err = d.DB.One(ctx, claimExistsQuery.With(account, name), &id)
	return id, db.IfNoRow(err, notFound())
}

// List returns a page of an account's domains, newest first, and whether
// there are more.
func (d *Domains) List(ctx context.Context, account db.ID, page db.Page) ([]Domain, bool, error) {
	claims, more, err := db.ReadPage(ctx, d.DB, accountDomainsQuery, page, scanClaim, account)
	if err != nil || len(claims) == 0 {
		return nil, false, err
	}
	keys, err := db.All(ctx, d.DB, keysInRangeQuery.With(account, claims[len(claims)-1].id, claims[0].id), scanKey)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Compare(a.id, b.id) })
	byDomain := map[db.ID][]key{}
	for _, k := range keys {
		byDomain[k.domain] = append(byDomain[k.domain], k)
	}
	all := make([]Domain, len(claims))
	for i, c := range claims {
		all[i] = d.toDomain(c, byDomain[c.id])
	}
	return all, more, nil
}

// Delete deletes a domain: from the commit on it can neither send nor receive. A domain with
// mailboxes or aliases is a fault.Conflict, a suspended one fault.Denied.
func (d *Domains) Delete(ctx context.Context, account, id db.ID) error {
	return d.DB.Tx(ctx, func(tx *db.Tx) error {
		var suspended int64
		if err := tx.One(ctx, lockDomainQuery.With(id, account), &suspended); err != nil {
			return db.IfNoRow(err, notFound())
		}
		if suspended > 0 { // creating it again would end the suspension
			return errSuspended()
		}
		used, err := d.HasMailboxes(ctx, tx, id)
		if err != nil {
			return err
		}
		if used {
			return fault.New(fault.Conflict, "domain_has_mailboxes",
				"This domain still has mailboxes or aliases. Delete them first; a deleted mailbox can be restored for 30 days and counts until then.")
		}
		tx.AfterCommit(func() { d.notifyChanged(id) })
		return tx.Run(ctx, deleteDomainQuery.With(id, account))
	})
}

// VerifiedName returns the name of a domain whose ownership the account has verified. It returns
// fault.NotFound for another account's domain, and fault.Denied for an unverified or suspended one.
func (d *Domains) VerifiedName(ctx context.Context, account, id db.ID) (name string, err error) {
	c, err := findClaim(ctx, d.DB, accountDomainQuery.With(id, account))
	switch {
	case err != nil:
		return "", err
	case c.suspended():
		return "", errSuspended()
	case !c.owned:
		return "", fault.New(fault.Denied, "domain_not_verified",
			"The ownership of this domain is not verified yet. Publish its OWNERSHIP record (TXT), then verify it.")
	}
	return c.name, nil
}
