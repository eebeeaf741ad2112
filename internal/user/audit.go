// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Deed is something that a user did in an account.
type Deed struct {
	ID   db.ID
	Who  string // the e-mail address at that time
	What string // a sentence
	From netip.Addr
	At   time.Time
}

var (
	insertDeed = db.SQL(`INSERT INTO dashboard_audit (id, account, person, who, what, address, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`)
	deeds      = db.Paged(`SELECT id, who, what, address, created_at FROM dashboard_audit WHERE account = $1 AND {page}`)
	oldDeeds   = db.SQL(`DELETE FROM dashboard_audit WHERE id IN (SELECT id FROM dashboard_audit WHERE created_at < $1 ORDER BY created_at LIMIT $2)`)
)

const maxDeed = 500 // bytes

// Note records what the user of a session did, in the session's account.
func (u *Users) Note(ctx context.Context, s Session, from netip.Addr, what string) error {
	return u.exec(ctx, insertDeed.With(u.DB.NewID(), s.Account, s.User.ID, s.User.Email, clip(what, maxDeed), from.String(), db.Micros(u.Now())))
}

// Deeds lists what was done in an account, the latest first.
func (u *Users) Deeds(ctx context.Context, account db.ID, page db.Page) ([]Deed, bool, error) {
	return db.ReadPage(ctx, u.DB, deeds, page, func(r db.Row) (d Deed, err error) {
		var from string
		var at int64
		err = r.Scan(&d.ID, &d.Who, &d.What, &from, &at)
		d.From, _ = netip.ParseAddr(from)
		d.At = db.Time(at)
		return d, err
	}, account)
}

// PruneDeeds deletes what was done before a time. It is a retention.Task's.
func (u *Users) PruneDeeds(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := u.DB.Exec(ctx, oldDeeds.With(db.Micros(before), limit))
	return int(deleted), err
}
