// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
)

// The states of an account. A suspended one sends and receives nothing, and
// nobody signs in to it; nothing of it is lost.
const (
	Active    = "active"
	Suspended = "suspended"
)

var (
	listAccounts = db.Paged(`SELECT id, email, name, status, created_at FROM account WHERE id > $1 AND {page}`)
	setStatus    = db.SQL(`UPDATE account SET status = $2 WHERE id = $1 AND id <> $3`)
)

// List lists the customers, the newest first.
func (a *Accounts) List(ctx context.Context, page db.Page) ([]Account, bool, error) {
	return db.ReadPage(ctx, a.db, listAccounts, page, func(r db.Row) (acc Account, err error) {
		var created int64
		err = r.Scan(&acc.ID, &acc.Email, &acc.Name, &acc.Status, &created)
		acc.CreatedAt = db.Time(created)
		return acc, err
	}, Operators)
}

// SetStatus suspends an account or ends that, on all nodes within seconds. One
// that is not there, and that of the operators, is fault.NotFound.
func (a *Accounts) SetStatus(ctx context.Context, id db.ID, status string) error {
	if status != Active && status != Suspended {
		var bad fault.Fields
		bad.Add("status", "invalid", "The status is active or suspended.")
		return bad.Err()
	}
	n, err := a.db.Exec(ctx, setStatus.With(id, status, Operators))
	if err == nil && n == 0 {
		err = fault.New(fault.NotFound, "not_found", "There is no such account.")
	}
	if err == nil {
		a.forget(id)
		a.hub.Wake(signal.Key{Kind: signal.Account, ID: int64(id)})
		if status == Suspended {
			a.hub.Wake(signal.Key{Kind: signal.Suspension})
		}
	}
	return err
}
