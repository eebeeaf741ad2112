// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// When a node of a newer release changes the type of a column, other nodes get no errors, despite
// the statements that their connections have prepared.
func TestColumnChangesBelowANode(t *testing.T) {
	u := dbtest.Postgres(t)
	d := dbtest.Open(t, u)
	admin := connect(t, u)
	dbtest.Exec(t, d, addAccount.With(1, "a@b.example", "A"))
	var names []*db.Query // more than maxTries
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
		return d.Write(t.Context(), 1, &db.Mutation{
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

// A migrating node does not block others from a table, and continues once it can: neither the
// others nor its start fail.
func TestMigrationBesideWork(t *testing.T) {
	u := dbtest.Postgres(t)
	dbtest.Open(t, u)
	work, look := connect(t, u), connect(t, u)
	exec(t, work, `BEGIN; LOCK TABLE folder IN ROW SHARE MODE`)
	migrated := make(chan error, 1)
	go func() {
		migrated <- db.MigrateWith(context.Background(), u, `ALTER TABLE account ADD COLUMN later TEXT;
			ALTER TABLE folder ADD COLUMN later TEXT;`)
	}()
	for waits := false; !waits; {
		if len(migrated) > 0 {
			t.Fatal("it did not wait: ", <-migrated)
		}
		if err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
			WHERE relation = 'folder'::regclass AND NOT granted)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, work, `SELECT COUNT(*) FROM account`) // which the migration has by now
	exec(t, work, `COMMIT`)
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}

// The previous release works on the newer schema.
func TestNewerSchema(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, u string) {
		d := dbtest.Open(t, u)
		dbtest.Exec(t, d, db.SQL(`INSERT INTO schema_migration (version_id, is_applied) VALUES (99999, TRUE)`).With())
		older := dbtest.Open(t, u)
		dbtest.Exec(t, older, addAccount.With(older.NewID(), "a@b.example", "A"))
	})
}
