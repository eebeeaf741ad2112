// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	accountMailboxesQuery = db.SQL(`SELECT id FROM mailbox WHERE account >= $1 AND account <= $1 ORDER BY account, id LIMIT $2`)
	accountQuery          = db.SQL(`SELECT account FROM mailbox WHERE id = $1`)
)

// IDsOf returns the first mailboxes of an account, at most limit, including deleted ones that can
// still be restored.
func IDsOf(ctx context.Context, from db.Reader, account db.ID, limit int) ([]db.ID, error) {
	return db.All(ctx, from, accountMailboxesQuery.With(account, limit), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
}

// AccountOf returns the account of a mailbox; 0 if there is no such mailbox.
func AccountOf(ctx context.Context, from db.Reader, id db.ID) (account db.ID, err error) {
	return account, db.IfNoRow(from.One(ctx, accountQuery.With(id), &account), nil)
}
