// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/secret"
)

// MaxDomains is the maximum number of domains of an account.
const MaxDomains = 10_000

var countDomainsQuery = db.SQL(`SELECT COUNT(*) FROM domain WHERE account = $1`)

// checkLimit returns a fault if the account has the maximum number of domains.
func checkLimit(ctx context.Context, from db.Reader, account db.ID) error {
	var n int
	err := from.One(ctx, countDomainsQuery.With(account), &n)
	if err == nil && n >= MaxDomains {
		err = fault.New(fault.Conflict, "too_many_domains", "An account can have %d domains. Delete one first.", MaxDomains)
	}
	return err
}

// Create adds a claim on a name to an account and generates its DKIM keys. A name that nobody may
// claim is fault.Invalid. A name that the account claims already is fault.Conflict, and so is one
// more than MaxDomains. Others may claim the name as well: the account that verifies ownership owns
// it.
func (d *Domains) Create(ctx context.Context, account db.ID, name string) (Domain, error) {
	name, err := d.normalizeName(name)
	if err != nil {
		return Domain{}, err
	}
	taken := fault.New(fault.Conflict, "domain_exists", "Your account has this domain already.")
	if exists, err := db.Exists(ctx, d.DB, claimExistsQuery.With(account, name)); exists || err != nil {
		return Domain{}, cmp.Or[error](err, taken)
	}
	if err := checkLimit(ctx, d.DB, account); err != nil { // before generating keys
		return Domain{}, err
	}
	if db.IsReadOnly(ctx) {
		return Domain{}, db.ErrReadOnly
	}
	now := d.Now().UTC().Truncate(time.Microsecond)
	c := &claim{
		id: d.DB.NewID(), account: account, name: name, claimState: claimState{status: StatusPending},
		token: secret.NewToken("", 20), observations: observations{}, dmarcEnforcement: EnforceFully, spamFiltering: EnforceFully, sts: STSTesting, createdAt: now, nextCheckAt: now.Add(d.FirstCheckDelay),
	}
	keys, err := d.generateKeys(ctx, c.id, []mailauth.Algorithm{mailauth.RSA, mailauth.Ed25519})
	if err != nil {
		return Domain{}, err
	}
	err = d.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "domains", account); err != nil {
			return err
		}
		if err := checkLimit(ctx, tx, account); err != nil {
			return err
		}
		insert := []db.Statement{insertDomainQuery.With(c.id, account, name, c.token, db.Micros(c.nextCheckAt), db.Micros(now))}
		for i := range keys {
			keys[i].state, keys[i].createdAt = KeyActive, now
			insert = append(insert, keys[i].insertStatement())
		}
		tx.AfterCommit(func() { d.notifyChanged(c.id) })
		return tx.Run(ctx, insert...)
	})
	if d.DB.IsConflict(err) {
		return Domain{}, taken
	}
	if err != nil {
		return Domain{}, err
	}
	return d.toDomain(c, keys), nil
}

// normalizeName normalizes a name and rejects names that can't belong to a customer.
func (d *Domains) normalizeName(name string) (string, error) {
	name, err := address.ParseDomain(strings.TrimSpace(name))
	if err != nil {
		return "", err
	}
	if address.IsPublicSuffix(name) {
		return "", fault.New(fault.Invalid, "public_suffix",
			"This is a name under which others register theirs. Give the domain that you registered.")
	}
	within := func(of string) bool { return name == of || strings.HasSuffix(name, "."+of) }
	if within(d.Host) || slices.ContainsFunc(d.ReservedNames, within) {
		return "", fault.New(fault.Invalid, "reserved_domain", "This name belongs to the mail service itself.")
	}
	return name, nil
}
