// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// In the sandbox a domain is checked within a second, and its records are found.
func TestSandboxVerifiesByItself(t *testing.T) {
	s := servertest.Start(t, func(c *server.Config) { c.FirstDomainCheck = server.DevConfig("").FirstDomainCheck })
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Domains.Create(t.Context(), acc.ID, "shop.test")
	if err != nil {
		t.Fatal(err)
	}
	if first := d.NextCheckAt.Sub(d.CreatedAt); first > time.Second {
		t.Errorf("the first check comes after %v", first)
	}
	servertest.Eventually(t, func() string {
		if d, err = s.Domains.Get(t.Context(), acc.ID, d.ID); err != nil {
			t.Fatal(err)
		}
		if d.Status != domain.StatusVerified {
			return "the domain is " + d.Status
		}
		return ""
	})
}
