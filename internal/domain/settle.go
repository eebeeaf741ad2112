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
	"github.com/mailstead/mailstead/internal/fault"
)

// grace is for how long a verified domain may be wrong before it degrades.
const grace = 24 * time.Hour

var (
	// The rows are locked (lockClaims).
	updateDomain = db.SQL(`UPDATE domain SET status = $2, held = $3, receives = $4, sends = $5, aligned = $6, records = $7,
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

// settle draws the consequences of a look, in one transaction that has all
// claims on the name locked: looks at the same time, also of several accounts
// or nodes, follow one another, and each transition happens once. manual says
// that a person asked for it.
func (d *Domains) settle(ctx context.Context, id db.ID, name string, l look, manual bool) (Domain, error) {
	var after Domain
	err := d.DB.Tx(ctx, func(tx *db.Tx) error {
		claims, err := db.All(ctx, tx, lockClaims.With(name), scanClaim)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(claims, func(c *claim) bool { return c.id == id })
		if at < 0 {
			return fault.New(fault.NotFound, "not_found", "There is no such domain.")
		}
		me := claims[at]
		keys, err := db.All(ctx, tx, keysOf.With(id), scanKey)
		if err != nil {
			return err
		}
		before, keysBefore := standings(claims), slices.Clone(keys)
		if d.draw(claims, me, keys, l) || manual {
			me.checks = 0
		} else {
			me.checks++
		}
		if l.at.After(me.checkedAt) {
			me.checkedAt = l.at
		}
		me.nextCheckAt = me.nextLook(l.at, keys, d.withSeen(d.asked(me, keys), me.seen))
		// The former holder first: only one may hold the name at any moment.
		slices.SortStableFunc(claims, func(a, b *claim) int { return cmp.Compare(rank(a), rank(b)) })
		for _, c := range claims {
			if c == me || c.standing != before[c.id] {
				if err := d.save(ctx, tx, c, before[c.id]); err != nil {
					return err
				}
			}
		}
		after = d.shown(me, keys)
		return d.saveKeys(ctx, tx, keysBefore, keys)
	})
	return after, err
}

// standings keeps what the claims were before.
func standings(claims []*claim) map[db.ID]standing {
	all := make(map[db.ID]standing, len(claims))
	for _, c := range claims {
		all[c.id] = c.standing
	}
	return all
}

func rank(c *claim) int {
	if c.held {
		return 1
	}
	return 0
}

// save writes a claim, with the event if it has become verified.
func (d *Domains) save(ctx context.Context, tx *db.Tx, c *claim, before standing) error {
	text, err := json.Marshal(c.seen)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, updateDomain.With(c.id, c.status, c.held, c.receives, c.sends, c.aligned, string(text),
		db.Micros(c.checkedAt), db.Micros(c.nextCheckAt), c.checks, db.Micros(c.mismatchSince),
		db.Micros(c.contestedSince), db.Micros(c.verifiedAt)))
	if err != nil {
		return err
	}
	if c.standing != before {
		tx.AfterCommit(func() { d.changed(c.id) })
	}
	if c.status != Verified || before.status == Verified {
		return nil
	}
	return d.Events.Record(ctx, tx, event.New{Account: c.account, Kind: event.DomainVerified, Domain: c.id, Status: c.status, Data: VerifiedEvent{
		Domain: c.id, Name: c.name, Status: c.status, VerifiedAt: c.verifiedAt,
	}})
}

// draw changes the claims as the look demands, and reports whether it brought
// anything new about me.
func (d *Domains) draw(claims []*claim, me *claim, keys []key, l look) bool {
	was := *me
	seen := sightings{}
	place := "TXT _mailstead." + me.name
	for _, r := range d.asked(me, keys) {
		if s, ok := me.seen[r.place()]; ok {
			seen[r.place()] = s // records that are no longer asked for are dropped
		}
		if s, ok := l.seen[r.place()]; ok && !s.At.Before(seen[r.place()].At) {
			if s.Status == TemporaryFailure {
				s.Observed = seen[r.place()].Observed
			}
			seen[r.place()] = s
		}
	}
	if _, looked := l.seen[place]; looked && l.tokens != nil && seen[place].At.Equal(l.at) {
		changeHands(claims, me, l.tokens, l.at)
		seen[place] = explainOwnership(claims, me, seen[place], l.tokens)
	}
	fresh := me.seen.differ(seen)
	me.seen = seen
	me.see(keys, d.withSeen(d.asked(me, keys), seen))
	turn(keys, l.at)
	records := d.withSeen(d.asked(me, keys), seen)
	me.progress(records, l.at)
	me.derive(records, keys)
	return fresh || was.status != me.status || was.held != me.held
}

// differ reports whether anything but times is different.
func (s sightings) differ(than sightings) bool {
	for place, now := range than {
		if was := s[place]; was.Status != now.Status || was.Asked != now.Asked {
			return true
		}
	}
	return false
}

// progress moves the status on. Records without an answer are neither good
// nor bad, so they change nothing.
func (c *claim) progress(records []Record, at time.Time) {
	good, bad := c.held, false
	for _, r := range records {
		if !r.Required {
			continue
		}
		if r.Status == RecordFailed {
			bad = true
		}
		if r.Status != RecordVerified && r.Kind != Ownership {
			good = false
		}
	}
	good = good && !bad
	switch {
	case c.suspended() || !c.held:
	case good:
		c.mismatchSince = time.Time{}
		if c.status != Verified {
			c.status, c.verifiedAt = Verified, at
		}
	case c.status != Verified || !bad:
	case c.mismatchSince.IsZero():
		c.mismatchSince = at
	case at.Sub(c.mismatchSince) >= grace:
		c.status = Degraded
	}
}

// derive sets what follows for sending and receiving, each from the last
// answer that there was.
func (c *claim) derive(records []Record, keys []key) {
	mx, spf := RecordPending, RecordPending
	for _, r := range records {
		switch r.Kind {
		case MX:
			mx = r.Status
		case SPF:
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
	// A day's grace for a verified domain: its DNS may just be in the making.
	c.sends = anySeen || c.status == Verified && c.sends
}
