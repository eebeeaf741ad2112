// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"crypto/rand"
)

var (
	ensureInstanceNameQuery = SQL(`INSERT INTO database_name (id, name) VALUES (1, $1)
		ON CONFLICT (id) DO UPDATE SET name = database_name.name RETURNING name`)
	resetInstanceNameQuery = SQL(`DELETE FROM database_name WHERE id = 1`)
)

// InstanceName tells this database from others that are used with the same secret key.
// It is made up when it is first asked for.
func (d *DB) InstanceName(ctx context.Context) (name string, err error) {
	err = d.Tx(ctx, func(tx *Tx) error { return tx.One(ctx, ensureInstanceNameQuery.With(rand.Text()), &name) })
	return name, err
}

// ResetInstanceName lets a copy of a database get a name of its own.
func (d *DB) ResetInstanceName(ctx context.Context) error {
	_, err := d.Exec(ctx, resetInstanceNameQuery.With())
	return err
}
