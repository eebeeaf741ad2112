// SPDX-License-Identifier: Apache-2.0

// Package leasetest provides tests with a database that a node has joined.
package leasetest

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
)

// Open opens a database, joins it as a node, and closes it with the test.
func Open(t testing.TB, url string) (*db.DB, *lease.Node) {
	t.Helper()
	d := dbtest.Open(t, url)
	n, err := lease.Join(t.Context(), d, lease.Options{Name: "test", Holder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return d, n
}
