// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// The states of an account. A suspended account can neither send nor receive mail, and nobody can
// sign in to it; none of its data is lost.
const (
	StatusActive    = "active"
	StatusSuspended = "suspended"
)

var (
	listAccountsQuery = db.PagedSQL(`SELECT ` + accountColumns + ` FROM account WHERE id > $1 AND {page}`)
	setStatusQuery    = db.SQL(`UPDATE account SET status = $2 WHERE id = $1 AND id <> $3`)
)

// List lists the customers, newest first.
func (a *Accounts) List(ctx context.Context, page db.Page) ([]Account, bool, error) {
	return db.ReadPage(ctx, a.db, listAccountsQuery, page, scanAccount, OperatorAccount)
}

// SetStatus suspends an account or ends its suspension, on all nodes within seconds. It returns
// fault.NotFound if the account doesn't exist, and for the operators' account.
func (a *Accounts) SetStatus(ctx context.Context, id db.ID, status string) error {
	if status != StatusActive && status != StatusSuspended {
		var bad fault.FieldErrors
		bad.Add("status", "invalid", "The status is active or suspended.")
		return bad.Err()
	}
	err := a.db.ExecOrFail(ctx, setStatusQuery.With(id, status, OperatorAccount), notFound())
	if err == nil {
		a.invalidate(id)
		a.hub.Wake(notify.Key{Kind: notify.Account, ID: int64(id)})
		if status == StatusSuspended {
			a.hub.Wake(notify.Key{Kind: notify.Suspension})
		}
	}
	return err
}
