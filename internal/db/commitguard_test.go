// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// The first commit under a guarded context contains the guard's statement, and no later one does. If
// the statement changes nothing, nothing is committed.
func TestCommitGuard(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		taken := errors.New("taken")
		for name, change := range map[string]func(ctx context.Context, id db.ID) error{
			"transaction": func(ctx context.Context, id db.ID) error {
				return d.Run(ctx, addAccount.With(id, id.String()+"@x.test", "changed"))
			},
			"mutation": func(ctx context.Context, id db.ID) error {
				return d.Write(ctx, id, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(addAccount.With(id, id.String()+"@x.test", "changed")) }})
			},
		} {
			t.Run(name, func(t *testing.T) {
				first, second, third, flag := d.NewID(), d.NewID(), d.NewID(), d.NewID()
				exists := func(id db.ID) bool {
					found, err := db.Exists(t.Context(), d, nameOf.With(id))
					if err != nil {
						t.Fatal(err)
					}
					return found
				}
				guard := func() *db.CommitGuard {
					return &db.CommitGuard{Statement: func() db.Statement { return setName.With(flag, "used") }, Declined: taken}
				}
				g := guard()
				ctx := db.WithCommitGuard(t.Context(), g)
				if err := change(ctx, first); !errors.Is(err, taken) || g.Committed() || exists(first) {
					t.Errorf("declined: %v, %v, %v", err, g.Committed(), exists(first))
				}
				if err := change(t.Context(), flag); err != nil {
					t.Fatal(err)
				}
				if err := change(ctx, first); err != nil || !g.Committed() {
					t.Errorf("guarded: %v, %v", err, g.Committed())
				}
				var name string
				if err := d.One(t.Context(), nameOf.With(flag), &name); err != nil || name != "used" {
					t.Errorf("the guard's row is %q, %v", name, err)
				}
				if err := d.Run(t.Context(), removeAccount.With(flag)); err != nil {
					t.Fatal(err)
				}
				if err := change(ctx, second); err != nil || !exists(second) {
					t.Errorf("the second commit: %v", err)
				}
				if err := change(db.WithCommitGuard(db.WithCommitGuard(t.Context(), guard()), nil), third); err != nil {
					t.Errorf("without the guard: %v", err)
				}
			})
		}
	})
}

var removeAccount = db.SQL(`DELETE FROM account WHERE id = $1`)
