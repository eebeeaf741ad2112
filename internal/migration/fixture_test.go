// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func clientOf(t *testing.T, s *servertest.Server) *client.Client {
	t.Helper()
	c, err := client.New(s.Dev.BaseURL, s.Dev.APIKey, client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// finished follows a migration until it has finished.
func finished(t *testing.T, c *client.Client, id string) *client.MigrationDetail {
	t.Helper()
	for m, err := range c.FollowMigration(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s %+v", m.Status, m.Detail, m.Progress)
	}
	m, err := c.GetMigration(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
