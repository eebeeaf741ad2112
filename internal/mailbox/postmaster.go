// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
)

var (
	takesMail  = db.SQL(`SELECT id FROM mailbox WHERE address = $1 AND deleted_at = 0 AND status = 'active' LIMIT 1`)
	oldestLive = db.SQL(`SELECT id FROM mailbox WHERE id > 0 AND deleted_at = 0 AND status = 'active' ORDER BY id LIMIT 1`)
)

// Postmaster says whether the address that Mailboxes.Operator is set to is a
// mailbox that takes mail, and whether there is any, which gets the mail else.
func Postmaster(ctx context.Context, r db.Reader, operator string) (named, anybody bool, err error) {
	if a, err := address.Parse(operator); err == nil {
		base, _ := a.Base()
		if named, err = found(ctx, r, takesMail.With(base.Key())); err != nil {
			return false, false, err
		}
	}
	anybody, err = found(ctx, r, oldestLive.With())
	return named, anybody, err
}

func found(ctx context.Context, r db.Reader, s db.Statement) (bool, error) {
	err := r.One(ctx, s, new(int64))
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}
