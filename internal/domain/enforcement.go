// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
)

// Enforcement is what is done with mail that fails the KindDMARC policy of its
// author's domain, or that a spam filter objects to.
type Enforcement string

// The ways to enforce, from hard to soft.
const (
	EnforceFully Enforcement = "enforce" // what the author's domain, or the filter, asks for
	EnforceJunk  Enforcement = "junk"    // no refusals: at most it goes to EnforceJunk
	EnforceOff   Enforcement = "off"     // nothing
)

// MinEnforcement returns the softer of two.
func MinEnforcement(a, b Enforcement) Enforcement {
	if a == EnforceOff || b == EnforceOff {
		return EnforceOff
	}
	if a == EnforceJunk || b == EnforceJunk {
		return EnforceJunk
	}
	return EnforceFully
}

var (
	enforcementQuery         = db.SQL(`SELECT dmarc_enforcement, spam_filtering FROM domain WHERE id = $1`)
	setDMARCEnforcementQuery = db.SQL(`UPDATE domain SET dmarc_enforcement = $3 WHERE id = $1 AND account = $2`)
	setSpamFilteringQuery    = db.SQL(`UPDATE domain SET spam_filtering = $3 WHERE id = $1 AND account = $2`)
)

// enforcementSettings is what the holder of a domain wants to be done with mail that arrives
// for it.
type enforcementSettings struct{ dmarc, spam Enforcement }

// DMARCEnforcement returns what the holder of a domain chose; Enforce if the domain
// is gone.
func (d *Domains) DMARCEnforcement(ctx context.Context, id db.ID) (Enforcement, error) {
	c, err := d.enforcementSettings(ctx, id)
	return c.dmarc, err
}

// SpamFiltering returns what the holder of a domain wants to be done with mail that
// a spam filter objects to; Enforce if the domain is gone.
func (d *Domains) SpamFiltering(ctx context.Context, id db.ID) (Enforcement, error) {
	c, err := d.enforcementSettings(ctx, id)
	return c.spam, err
}

func (d *Domains) enforcementSettings(ctx context.Context, id db.ID) (enforcementSettings, error) {
	e, mark, ok := d.enforcements.get(id)
	if now := d.Now(); !ok || !now.Before(e.expiresAt) {
		c := enforcementSettings{EnforceFully, EnforceFully}
		err := d.DB.One(ctx, enforcementQuery.With(id), &c.dmarc, &c.spam)
		if err != nil && !errors.Is(err, db.ErrNoRow) {
			return enforcementSettings{}, err
		}
		e = cacheEntry[enforcementSettings]{c, nil, now.Add(cacheTTL)}
		d.enforcements.put(id, e, mark)
	}
	return e.value, nil
}
