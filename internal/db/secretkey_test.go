// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

// All nodes of a database have one secret key.
func TestSameKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for range 2 {
			if err := d.BindSecretKey(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			if err := d.BindSecretKey(t.Context(), "another"); !fault.Is(err, fault.Conflict) {
				t.Errorf("a node with another key: %v", err)
			}
		}
	})
}
