// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// Limits of the rotation interval. A key must be in use for longer than the previous one stays
// published.
const (
	MinRotationDays = 7
	MaxRotationDays = 3650
)

// Change is a change of a domain; nil fields stay as they are.
type Change struct {
	RotationDays     *int         // 0, or MinRotationDays to MaxRotationDays
	DMARCEnforcement *Enforcement // one of the Enforcement constants
	SpamFiltering    *Enforcement // one of the Enforcement constants
	STS              *STSMode     // one of the STSMode constants
}

var setRotationQuery = db.SQL(`UPDATE domain SET dkim_rotation_days = $3,
		next_check_at = CASE WHEN next_check_at > $4 THEN $4 ELSE next_check_at END
	WHERE id = $1 AND account = $2`)

// Update changes a domain and returns it. It returns fault.NotFound if the account has no such
// domain, and fault.Invalid if a value is out of range.
func (d *Domains) Update(ctx context.Context, account, id db.ID, c Change) (Domain, error) {
	var bad fault.FieldErrors
	if days := c.RotationDays; days != nil && *days != 0 && (*days < MinRotationDays || *days > MaxRotationDays) {
		bad.Add("dkim_rotation_days", "out_of_range", "Give %d to %d days, or 0 for no rotation.", MinRotationDays, MaxRotationDays)
	}
	if c.DMARCEnforcement != nil && !slices.Contains([]Enforcement{EnforceFully, EnforceJunk, EnforceOff}, *c.DMARCEnforcement) {
		bad.Add("dmarc_enforcement", "unknown_enforcement", "Give enforce, junk or off.")
	}
	if c.SpamFiltering != nil && !slices.Contains([]Enforcement{EnforceFully, EnforceJunk, EnforceOff}, *c.SpamFiltering) {
		bad.Add("spam_filtering", "unknown_enforcement", "Give enforce, junk or off.")
	}
	if c.STS != nil && !slices.Contains([]STSMode{STSNone, STSTesting, STSEnforce}, *c.STS) {
		bad.Add("mta_sts", "unknown_mode", "Give none, testing or enforce.")
	}
	if err := bad.Err(); err != nil {
		return Domain{}, err
	}
	soon := db.Micros(d.Now().Add(d.FirstCheckDelay))
	var set []db.Statement
	if c.RotationDays != nil {
		set = append(set, setRotationQuery.With(id, account, *c.RotationDays, soon))
	}
	if c.DMARCEnforcement != nil {
		set = append(set, setDMARCEnforcementQuery.With(id, account, string(*c.DMARCEnforcement)))
	}
	if c.SpamFiltering != nil {
		set = append(set, setSpamFilteringQuery.With(id, account, string(*c.SpamFiltering)))
	}
	if c.STS != nil {
		set = append(set, setSTSQuery.With(id, account, string(*c.STS), soon))
	}
	if len(set) > 0 {
		err := d.DB.Tx(ctx, func(tx *db.Tx) error {
			tx.AfterCommit(func() { d.notifyChanged(id) })
			return tx.Run(ctx, set...)
		})
		if err != nil {
			return Domain{}, err
		}
	}
	return d.Get(ctx, account, id)
}

// RotateKeys generates new DKIM keys for those in use, or only for one algorithm ("rsa" or
// "ed25519"), and returns them. They are used after they were seen in the DNS; the old ones then
// stay published for 7 days. It returns fault.Conflict while a new key is pending, so that only one
// of several concurrent rotations succeeds.
func (d *Domains) RotateKeys(ctx context.Context, account, id db.ID, algorithm string) ([]DKIMKey, error) {
	c, err := findClaim(ctx, d.DB, accountDomainQuery.With(id, account))
	if err != nil {
		return nil, err
	}
	if c.suspended() {
		return nil, errSuspended()
	}
	switch mailauth.Algorithm(algorithm) {
	case "", mailauth.RSA, mailauth.Ed25519:
	default:
		var bad fault.FieldErrors
		bad.Add("algorithm", "unknown_algorithm", "The algorithms are rsa and ed25519.")
		return nil, bad.Err()
	}
	keys, err := db.All(ctx, d.DB, domainKeysQuery.With(id), scanKey)
	if err != nil {
		return nil, err
	}
	wanted := activeAlgorithms(keys)
	if algorithm != "" {
		wanted = []mailauth.Algorithm{mailauth.Algorithm(algorithm)}
	}
	for _, k := range keys {
		if k.state == KeyPending && slices.Contains(wanted, mailauth.Algorithm(k.algorithm)) {
			return nil, errKeyPending // before generating keys
		}
	}
	added, err := d.replaceKeys(ctx, c, wanted, nil)
	if err != nil {
		return nil, err
	}
	all := make([]DKIMKey, len(added))
	for i := range added {
		all[i] = d.toDKIMKey(c, &added[i])
	}
	return all, nil
}

func (d *Domains) replaceKeys(ctx context.Context, c *claim, algorithms []mailauth.Algorithm, also func([]key) error) ([]key, error) {
	made, err := d.generateKeys(ctx, c.id, algorithms)
	if err != nil {
		return nil, err
	}
	return d.addPendingKeys(ctx, c.account, c.id, made, also)
}

// activeAlgorithms lists the algorithms of the active keys, RSA first.
func activeAlgorithms(keys []key) (all []mailauth.Algorithm) {
	for _, a := range []mailauth.Algorithm{mailauth.RSA, mailauth.Ed25519} {
		if slices.ContainsFunc(keys, func(k key) bool { return k.state == KeyActive && k.algorithm == string(a) }) {
			all = append(all, a)
		}
	}
	return all
}

// rotateIfDue starts a rotation if the domain's schedule requires one.
func (d *Domains) rotateIfDue(ctx context.Context, c *claim) error {
	if c.rotationDays == 0 {
		return nil
	}
	keys, err := db.All(ctx, d.DB, domainKeysQuery.With(c.id), scanKey)
	if err != nil {
		return err
	}
	due := func(keys []key) bool {
		at := c.rotationDue(keys)
		return !at.IsZero() && !d.Now().Before(at)
	}
	if !due(keys) {
		return nil
	}
	made := slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return k.customerProvided })
	_, err = d.replaceKeys(ctx, c, activeAlgorithms(made), func(keys []key) error {
		if !due(keys) {
			return errNotDue
		}
		return nil
	})
	if fault.Is(err, fault.Conflict) {
		return nil // another node has started it, or the customer's keys are too many
	}
	return err
}

var errNotDue = fault.New(fault.Conflict, "not_due", "The keys were rotated a moment ago.")

// rotationDue returns when the schedule requires new keys; zero for never, or while a new key is
// pending. It ignores keys that the customer provided.
func (c *claim) rotationDue(keys []key) (at time.Time) {
	if c.rotationDays == 0 || !c.owned || c.suspended() {
		return time.Time{}
	}
	for _, k := range keys {
		switch {
		case k.state == KeyPending:
			return time.Time{}
		case k.state != KeyActive || k.customerProvided || k.activeAt.IsZero():
			continue
		}
		if due := k.activeAt.AddDate(0, 0, int(c.rotationDays)); at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}
