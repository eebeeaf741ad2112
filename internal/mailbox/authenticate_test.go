// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestPassword(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box := h.create("ann", good)
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ANN@Demo.Test", good, here); err != nil {
			t.Fatal(err)
		}
		if err := h.CheckLogin(ctx, box); err != nil {
			t.Error(err)
		}
		made, err := h.SetPassword(ctx, h.account, box.ID, nil)
		wantKind(t, h.CheckLogin(ctx, box), fault.Unauthenticated, "login_revoked")
		if err != nil || made == "" {
			t.Fatal(made, err)
		}
		_, err = h.Authenticate(ctx, mailbox.IMAP, box.Address, good, here)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		if _, err := h.Authenticate(ctx, mailbox.IMAP, box.Address, made, here); err != nil {
			t.Error(err)
		}
		if again, err := h.SetPassword(ctx, h.account, box.ID, new(good)); err != nil || again != "" {
			t.Errorf("returned a given password, or %v", err)
		}
		_, err = h.SetPassword(ctx, h.account+1, box.ID, new(good))
		wantKind(t, err, fault.NotFound, "not_found")
		for _, user := range []string{"nobody@demo.test", "no address", ""} {
			_, err = h.Authenticate(ctx, mailbox.IMAP, user, good, here)
			wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		}
	})
}

// A signed-in user can change the password unless that login has ended meanwhile.
func TestChangePassword(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		h.create("ann", good)
		signIn := func(password string) mailbox.Mailbox {
			t.Helper()
			box, err := h.Authenticate(ctx, mailbox.Web, "ann@demo.test", password, here)
			if err != nil {
				t.Fatal(err)
			}
			return box
		}
		first, second := signIn(good), signIn(good)
		_, err := h.ChangePassword(ctx, first, "short")
		wantKind(t, err, fault.Invalid, "validation_failed")
		const other = "Another-Passw0rd!"
		changed, err := h.ChangePassword(ctx, first, other)
		if err != nil || changed.Generation() != signIn(other).Generation() {
			t.Errorf("%+v, %v", changed, err)
		}
		_, err = h.ChangePassword(ctx, second, "Stolen-Passw0rd!")
		wantKind(t, err, fault.Conflict, "password_changed")
		wantKind(t, h.CheckLogin(ctx, first), fault.Unauthenticated, "login_revoked")
		stolen := signIn(other)
		made, err := h.SetPassword(ctx, h.account, stolen.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.ChangePassword(ctx, stolen, "Stolen-Passw0rd!")
		wantKind(t, err, fault.Conflict, "password_changed")
		if now := signIn(made); now.Generation() == changed.Generation() {
			t.Error("the cookie of who changed it before is still good")
		}
	})
}

func TestGuessing(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		h.create("ann", good)
		from := netip.MustParseAddr("198.51.100.9")
		tries := 0
		for ; tries < 50; tries++ {
			_, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", "Wrong-"+string(rune('a'+tries))+"-1", from)
			if fault.Is(err, fault.RateLimited) {
				break
			}
			wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		}
		if tries == 0 || tries == 50 {
			t.Errorf("limited after %d tries", tries)
		}
		if slices.Max(h.waited) == 0 {
			t.Error("answers were never delayed")
		}
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here); err != nil {
			t.Errorf("the owner from elsewhere: %v", err)
		}
	})
}
