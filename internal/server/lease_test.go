// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var leaseLeft = db.SQL(`SELECT MAX(expires_at) - {now} FROM lease`)

// On SQLite the lease lasts longer than the longest commit of a client, for which a renewal waits.
// Otherwise mail that is being sent would be sent again.
func TestLeaseOutlastsCommits(t *testing.T) {
	s := servertest.Start(t, func(c *server.Config) { c.Database = "sqlite" })
	var left int64
	if err := s.DB.One(t.Context(), leaseLeft.With(), &left); err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(left) * time.Microsecond; left < 2*time.Minute {
		t.Errorf("the lease ends in %v", left)
	}
}
