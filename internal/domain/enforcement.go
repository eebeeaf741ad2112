// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
)

// Enforcement is what is done with mail that fails the DMARC policy of its
// author's domain, or that a spam filter objects to.
type Enforcement string

// The ways to enforce, from hard to soft.
const (
	Enforce Enforcement = "enforce" // what the author's domain, or the filter, asks for
	Junk    Enforcement = "junk"    // no refusals: at most it goes to Junk
	Off     Enforcement = "off"     // nothing
)

// Softer returns the softer of two.
func Softer(a, b Enforcement) Enforcement {
	if a == Off || b == Off {
		return Off
	}
	if a == Junk || b == Junk {
		return Junk
	}
	return Enforce
}

var (
	chosenFor      = db.SQL(`SELECT dmarc_enforcement, spam_filtering FROM domain WHERE id = $1`)
	setEnforcement = db.SQL(`UPDATE domain SET dmarc_enforcement = $3 WHERE id = $1 AND account = $2`)
	setFiltering   = db.SQL(`UPDATE domain SET spam_filtering = $3 WHERE id = $1 AND account = $2`)
)

// choice is what the holder of a domain wants to be done with mail that arrives
// for it.
type choice struct{ enforcement, filtering Enforcement }

// Enforcement returns what the holder of a domain chose; Enforce if the domain
// is gone.
func (d *Domains) Enforcement(ctx context.Context, id db.ID) (Enforcement, error) {
	c, err := d.chosen(ctx, id)
	return c.enforcement, err
}

// Filtering returns what the holder of a domain wants to be done with mail that
// a spam filter objects to; Enforce if the domain is gone.
func (d *Domains) Filtering(ctx context.Context, id db.ID) (Enforcement, error) {
	c, err := d.chosen(ctx, id)
	return c.filtering, err
}

func (d *Domains) chosen(ctx context.Context, id db.ID) (choice, error) {
	e, mark, ok := d.choices.get(id)
	if now := d.Now(); !ok || !now.Before(e.until) {
		c := choice{Enforce, Enforce}
		err := d.DB.One(ctx, chosenFor.With(id), &c.enforcement, &c.filtering)
		if err != nil && !errors.Is(err, db.ErrNoRow) {
			return choice{}, err
		}
		e = known[choice]{c, nil, now.Add(remember)}
		d.choices.put(id, e, mark)
	}
	return e.value, nil
}
