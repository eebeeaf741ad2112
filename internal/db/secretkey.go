// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"

	"github.com/mailstead/mailstead/internal/fault"
)

var bindSecretKeyQuery = SQL(`INSERT INTO service_key (id, fingerprint) VALUES (1, $1)
	ON CONFLICT (id) DO UPDATE SET fingerprint = service_key.fingerprint RETURNING fingerprint`)

// BindSecretKey stores the fingerprint of the secret key that this database is used with. It
// returns a fault.Conflict if the database is used with another key: every node must be able to
// open and verify secrets and signatures of the others.
func (d *DB) BindSecretKey(ctx context.Context, fingerprint string) error {
	var known string
	err := d.Tx(ctx, func(tx *Tx) error { return tx.One(ctx, bindSecretKeyQuery.With(fingerprint), &known) })
	if err == nil && known != fingerprint {
		err = fault.New(fault.Conflict, "other_secret_key",
			"This database is used with another secret key. Give all nodes the same one, by --secret-key or as the file secret.key of their data folders.")
	}
	return err
}
