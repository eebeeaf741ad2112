// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A node of a newer release changes the type of a column: whoever works on the
// database sees nothing of that, whatever his connections had prepared.
func TestColumnChangesBelowANode(t *testing.T) {
	u := dbtest.Postgres(t)
	d, _ := dbtest.Open(t, u)
	admin := connect(t, u)
	dbtest.Exec(t, d, addAccount.With(1, "a@b.example", "A"))
	var names []*db.Query // more than a transaction is repeated
	for n := range 12 {
		names = append(names, db.SQL(fmt.Sprintf(`SELECT name FROM account WHERE id = $1 AND id <> -%d`, n+1)))
	}
	read := func() error {
		var name string
		return d.One(t.Context(), names[0].With(1), &name)
	}
	tx := func() error {
		return d.Tx(t.Context(), func(tx *db.Tx) error {
			for _, q := range names {
				var name string
				if err := tx.One(t.Context(), q.With(1), &name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	write := func() error {
		return d.Write(t.Context(), 1, &db.Job{
			Guard: func(b *db.Batch) { b.Queue(nameOf.With(1)).One(new(string)) },
			Apply: func(b *db.Batch) { b.Queue(setName.With(1, "B")) },
		})
	}
	for what, do := range map[string]func() error{"read": read, "transaction": tx, "write": write} {
		for _, collation := range []string{`"C"`, `"default"`} {
			if err := do(); err != nil {
				t.Fatalf("%s before: %v", what, err)
			}
			exec(t, admin, `ALTER TABLE account ALTER COLUMN name TYPE TEXT COLLATE `+collation)
			if err := do(); err != nil {
				t.Errorf("%s, of a column that is now %s: %v", what, collation, err)
			}
		}
	}
}
