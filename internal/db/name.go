// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"crypto/rand"
)

var (
	ownName = SQL(`INSERT INTO database_name (id, name) VALUES (1, $1)
		ON CONFLICT (id) DO UPDATE SET name = database_name.name RETURNING name`)
	forgetName = SQL(`DELETE FROM database_name WHERE id = 1`)
)

// Name tells this database from others that are used with the same secret key.
// It is made up when it is first asked for.
func (d *DB) Name(ctx context.Context) (name string, err error) {
	err = d.Tx(ctx, func(tx *Tx) error { return tx.One(ctx, ownName.With(rand.Text()), &name) })
	return name, err
}

// ForgetName lets a copy of a database get a name of its own.
func (d *DB) ForgetName(ctx context.Context) error {
	_, err := d.Exec(ctx, forgetName.With())
	return err
}
