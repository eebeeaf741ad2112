// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// Enforcement is the handling of mail that fails the DMARC policy of its author's domain, or that
// the spam filter objects to.
type Enforcement string

// The enforcement settings, from strict to lenient.
const (
	EnforceFully Enforcement = "enforce" // as the author's domain, or the filter, requests
	EnforceJunk  Enforcement = "junk"    // never reject: move to Junk at most
	EnforceOff   Enforcement = "off"     // no effect
)

// MinEnforcement returns the more lenient of two.
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

// enforcementSettings are a domain owner's settings for incoming mail.
type enforcementSettings struct{ dmarc, spam Enforcement }

// DMARCEnforcement returns the domain's setting, or EnforceFully if the domain is gone.
func (d *Domains) DMARCEnforcement(ctx context.Context, id db.ID) (Enforcement, error) {
	c, err := d.enforcementSettings(ctx, id)
	return c.dmarc, err
}

// SpamFiltering returns the domain's setting for the spam filter, or EnforceFully if the domain is
// gone.
func (d *Domains) SpamFiltering(ctx context.Context, id db.ID) (Enforcement, error) {
	c, err := d.enforcementSettings(ctx, id)
	return c.spam, err
}

func (d *Domains) enforcementSettings(ctx context.Context, id db.ID) (enforcementSettings, error) {
	return lookUp(&d.enforcements, id, d.Now(), func() (enforcementSettings, error) {
		c := enforcementSettings{EnforceFully, EnforceFully}
		err := d.DB.One(ctx, enforcementQuery.With(id), &c.dmarc, &c.spam)
		return c, db.IfNoRow(err, nil)
	})
}
