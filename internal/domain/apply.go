// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// degradeAfter is how long a verified domain may have wrong records before it degrades.
const degradeAfter = 24 * time.Hour

var (
	// The rows are locked by lockClaimsQuery.
	updateDomainQuery = db.SQL(`UPDATE domain SET status = $2, owned = $3, receives = $4, sends = $5, aligned = $6, records = $7,
			checked_at = $8, next_check_at = $9, checks = $10, mismatch_since = $11, contested_since = $12, verified_at = $13
		WHERE id = $1`)
)

// VerifiedEvent is the data of a domain_verified event.
type VerifiedEvent struct {
	Domain     db.ID     `json:"domain_id" doc:"The domain's id."`
	Name       string    `json:"name" doc:"Its name." example:"example.com"`
	Status     string    `json:"status" enum:"verified" doc:"Its state now."`
	VerifiedAt time.Time `json:"verified_at" doc:"Since when."`
}

// applySnapshot applies the result of a DNS check in one transaction. It locks all claims on the
// name. So concurrent checks, also by several accounts or nodes, run one after the other, and each
// transition happens once. manual says that a person requested the check.
func (d *Domains) applySnapshot(ctx context.Context, id db.ID, name string, l dnsSnapshot, manual bool) (Domain, error) {
	var after Domain
	err := d.DB.Tx(ctx, func(tx *db.Tx) error {
		claims, err := db.All(ctx, tx, lockClaimsQuery.With(name), scanClaim)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(claims, func(c *claim) bool { return c.id == id })
		if at < 0 {
			return notFound()
		}
		me := claims[at]
		keys, err := db.All(ctx, tx, domainKeysQuery.With(id), scanKey)
		if err != nil {
			return err
		}
		before, keysBefore := claimStates(claims), slices.Clone(keys)
		if d.evaluateClaims(claims, me, keys, l) || manual {
			me.checks = 0
		} else {
			me.checks++
		}
		if l.at.After(me.checkedAt) {
			me.checkedAt = l.at
		}
		me.nextCheckAt = me.nextCheck(l.at, keys, d.withObservations(d.expectedRecords(me, keys), me.observations))
		// The former owner first: only one account may own the name at any moment.
		slices.SortStableFunc(claims, func(a, b *claim) int { return cmp.Compare(claimRank(a), claimRank(b)) })
		for _, c := range claims {
			if c == me || c.claimState != before[c.id] {
				if err := d.saveClaim(ctx, tx, c, before[c.id]); err != nil {
					return err
				}
			}
		}
		after = d.toDomain(me, keys)
		return d.saveKeyStates(ctx, tx, keysBefore, keys)
	})
	return after, err
}

// claimStates returns the states of the claims before a change.
func claimStates(claims []*claim) map[db.ID]claimState {
	all := make(map[db.ID]claimState, len(claims))
	for _, c := range claims {
		all[c.id] = c.claimState
	}
	return all
}

func claimRank(c *claim) int {
	if c.owned {
		return 1
	}
	return 0
}

// saveClaim writes a claim, with an event if it has become verified.
func (d *Domains) saveClaim(ctx context.Context, tx *db.Tx, c *claim, before claimState) error {
	text, err := json.Marshal(c.observations)
	if err != nil {
		return err
	}
	err = tx.Run(ctx, updateDomainQuery.With(c.id, c.status, c.owned, c.receives, c.sends, c.aligned, string(text),
		db.Micros(c.checkedAt), db.Micros(c.nextCheckAt), c.checks, db.Micros(c.mismatchSince),
		db.Micros(c.contestedSince), db.Micros(c.verifiedAt)))
	if err != nil {
		return err
	}
	if c.claimState != before {
		tx.AfterCommit(func() { d.notifyChanged(c.id) })
	}
	if c.status != StatusVerified || before.status == StatusVerified {
		return nil
	}
	return d.Events.Record(ctx, tx, event.RecordParams{Account: c.account, Kind: event.DomainVerified, Domain: c.id, Status: c.status, Data: VerifiedEvent{
		Domain: c.id, Name: c.name, Status: c.status, VerifiedAt: c.verifiedAt,
	}})
}

// evaluateClaims updates the claims from the DNS check, and reports whether anything about me has
// changed.
func (d *Domains) evaluateClaims(claims []*claim, me *claim, keys []key, l dnsSnapshot) bool {
	was := *me
	seen := observations{}
	ownership := "TXT _mailstead." + me.name
	for _, r := range d.expectedRecords(me, keys) {
		if s, ok := me.observations[r.key()]; ok {
			seen[r.key()] = s // observations of records that are no longer expected are dropped
		}
		if s, ok := l.observations[r.key()]; ok && !s.At.Before(seen[r.key()].At) {
			if s.Status == RecordTemporaryFailure {
				s.Observed = seen[r.key()].Observed
			}
			seen[r.key()] = s
		}
	}
	if _, looked := l.observations[ownership]; looked && l.tokens != nil && seen[ownership].At.Equal(l.at) {
		transferOwnership(claims, me, l.tokens, l.at)
		seen[ownership] = explainOwnership(claims, me, seen[ownership], l.tokens)
	}
	fresh := me.observations.differFrom(seen)
	me.observations = seen
	me.markSeenKeys(keys, d.withObservations(d.expectedRecords(me, keys), seen))
	advanceKeys(keys, l.at)
	records := d.withObservations(d.expectedRecords(me, keys), seen)
	me.updateStatus(records, l.at)
	me.updateCapabilities(records, keys)
	return fresh || was.status != me.status || was.owned != me.owned
}

// differFrom reports whether anything except times differs.
func (s observations) differFrom(than observations) bool {
	for name, now := range than {
		if was := s[name]; was.Status != now.Status || was.Expected != now.Expected {
			return true
		}
	}
	return false
}

// updateStatus updates the claim's status. Records without an answer are neither good nor bad, so
// they change nothing.
func (c *claim) updateStatus(records []Record, at time.Time) {
	good, bad := c.owned, false
	for _, r := range records {
		if !r.Required {
			continue
		}
		if r.Status == RecordFailed {
			bad = true
		}
		if r.Status != RecordVerified && r.Kind != KindOwnership {
			good = false
		}
	}
	good = good && !bad
	switch {
	case c.suspended() || !c.owned:
	case good:
		c.mismatchSince = time.Time{}
		if c.status != StatusVerified {
			c.status, c.verifiedAt = StatusVerified, at
		}
	case c.status != StatusVerified || !bad:
	case c.mismatchSince.IsZero():
		c.mismatchSince = at
	case at.Sub(c.mismatchSince) >= degradeAfter:
		c.status = StatusDegraded
	}
}

// updateCapabilities sets sends, receives and aligned, each from the last answer that there was.
func (c *claim) updateCapabilities(records []Record, keys []key) {
	mx, spf := RecordPending, RecordPending
	for _, r := range records {
		switch r.Kind {
		case KindMX:
			mx = r.Status
		case KindSPF:
			spf = r.Status
		}
	}
	switch mx {
	case RecordVerified:
		c.receives = true
	case RecordFailed:
		c.receives = false
	}
	switch {
	case mx == RecordVerified && spf == RecordVerified:
		c.aligned = true
	case mx == RecordFailed || spf == RecordFailed:
		c.aligned = false
	}
	anySeen := false
	for _, k := range keys {
		anySeen = anySeen || k.seen && k.state != KeyPending
	}
	// A verified domain has a day's grace: its DNS may be just changing.
	c.sends = anySeen || c.status == StatusVerified && c.sends
}
