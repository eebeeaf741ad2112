// SPDX-License-Identifier: Apache-2.0

package user_test

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// Every member of an account is listed.
func TestManyPeople(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.create("ann@example.com", first)
		invite := func(n int) error {
			_, err := h.CreateInviteLink(ctx, first, fmt.Sprintf("guest%d@example.com", n), user.RoleOwner, false)
			return err
		}
		for n := range 199 {
			if err := invite(n); err != nil {
				t.Fatal(err)
			}
		}
		is(t, invite(199), fault.Conflict)
		open, err := h.Invitations(ctx, first)
		if err != nil || len(open) != 199 {
			t.Fatal(len(open), err)
		}
		if err := h.WithdrawInvitation(ctx, first, open[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := invite(199); err != nil {
			t.Fatal(err)
		}
	})
}
