// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"errors"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// Under a context of WithReadOnly reads work, and writes fail.
func TestReadOnly(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d := dbtest.Open(t, url)
		ctx := db.WithReadOnly(t.Context())
		made := db.SQL(`INSERT INTO notice (id, message, n, action, recipient, orcpt, code, enhanced, reply, remote_host, next_at, expires_at, at, due_at)
			VALUES ($1, 1, 0, '', '', '', 0, '', '', '', 0, 0, 0, 0)`)
		ran := false
		_, exec := d.Exec(ctx, made.With(1))
		for name, err := range map[string]error{
			"Exec": exec,
			"Tx":   d.Tx(ctx, func(*db.Tx) error { ran = true; return nil }),
			"Write": d.Write(ctx, 1, &db.Mutation{Apply: func(b *db.Batch) {
				ran = true
				b.Queue(made.With(2))
			}}),
		} {
			if !errors.Is(err, db.ErrReadOnly) || ran {
				t.Errorf("%s: %v, ran %v", name, err, ran)
			}
		}
		var n int
		if err := d.One(ctx, db.SQL(`SELECT COUNT(*) FROM notice`).With(), &n); err != nil || n != 0 {
			t.Errorf("%d rows, %v", n, err)
		}
		if !db.IsReadOnly(ctx) || db.IsReadOnly(t.Context()) {
			t.Error("the wrong context is told to be read only")
		}
	})
}
