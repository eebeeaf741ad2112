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

// InstanceName returns a random name that tells this database from others with the same secret
// key. The first call generates it.
func (d *DB) InstanceName(ctx context.Context) (name string, err error) {
	err = d.Tx(ctx, func(tx *Tx) error { return tx.One(ctx, ensureInstanceNameQuery.With(rand.Text()), &name) })
	return name, err
}

// ResetInstanceName deletes the instance name, so that a copy of a database gets its own.
func (d *DB) ResetInstanceName(ctx context.Context) error {
	return d.Run(ctx, resetInstanceNameQuery.With())
}
