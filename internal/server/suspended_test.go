// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A suspended account receives nothing, neither in its mailboxes nor through its aliases to outside
// addresses. Mail to other recipients is still accepted.
func TestSuspendedAccountReceivesNothing(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		if _, err := clientOf(t, s).CreateAlias(t.Context(), "out@demo.test", "far@away.example.net"); err != nil {
			t.Fatal(err)
		}
		demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Accounts.SetStatus(t.Context(), demo.ID, account.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"alice@demo.test", "out@demo.test", "postmaster@demo.test", "abuse@demo.test"} {
			if err := mx(t, s, "ann@good.com", question, to); err == nil || !strings.HasPrefix(err.Error(), `550 "5.2.1`) {
				t.Errorf("%s: %v", to, err)
			}
		}
		if err := s.Accounts.SetStatus(t.Context(), demo.ID, account.StatusActive); err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "ann@good.com", question, "alice@demo.test"); err != nil {
			t.Fatal(err)
		}
		arrived(t, s, 0, 1)
	})
}
