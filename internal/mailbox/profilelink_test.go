// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// A link gives one app password, to the first client that redeems it in time.
func TestProfileLink(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		link := func() string {
			t.Helper()
			token, err := h.CreateProfileLink(ctx, h.account, ann.ID, " Ann's phone ")
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		over := func(what, token string) {
			t.Helper()
			_, _, err := h.FindProfileLink(ctx, token)
			wantKind(t, err, fault.NotFound, "link_over")
			_, _, password, err := h.RedeemProfileLink(ctx, token)
			wantKind(t, err, fault.NotFound, "link_over")
			if password != "" {
				t.Error(what, "gives a password")
			}
		}
		token := link()
		for range 2 { // looking doesn't redeem the link
			if box, name, err := h.FindProfileLink(ctx, token); err != nil || box.ID != ann.ID || name != "Ann's phone" {
				t.Fatalf("%v %q %v", box.ID, name, err)
			}
		}
		var won atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				box, made, password, err := h.RedeemProfileLink(ctx, token)
				if err != nil {
					return
				}
				won.Add(1)
				if signed, err := h.Authenticate(ctx, mailbox.SMTP, "ann@demo.test", password, here); err != nil || signed.ID != ann.ID || box.ID != ann.ID || made.Name != "Ann's phone" {
					t.Errorf("%+v %+v %v", box, made, err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%d got a password", won.Load())
		}
		if list, _, err := h.AppPasswords(ctx, h.account, ann.ID, db.Page{}); err != nil || len(list) != 1 {
			t.Errorf("there are %d app passwords, %v", len(list), err)
		}
		over("a spent link", token)
		over("no link", "mpl_aaaa")

		late := link()
		h.now = h.now.Add(mailbox.ProfileLinkTTL)
		over("a late link", late)

		former := link()
		password := "An0ther-password"
		if _, err := h.SetPassword(ctx, h.account, ann.ID, &password); err != nil {
			t.Fatal(err)
		}
		over("a link of before the password changed", former)
		gone := link()
		if err := h.Delete(ctx, h.account, ann.ID); err != nil {
			t.Fatal(err)
		}
		over("a link of a deleted mailbox", gone)

		bob := h.create("bob", good)
		_, err := h.CreateProfileLink(ctx, h.db.NewID(), bob.ID, "Phone")
		wantKind(t, err, fault.NotFound, "not_found")
		for _, name := range []string{"", "a\nb", strings.Repeat("x", 101)} {
			_, err := h.CreateProfileLink(ctx, h.account, bob.ID, name)
			wantKind(t, err, fault.Invalid, "validation_failed")
		}
		var made atomic.Int64
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := h.CreateProfileLink(ctx, h.account, bob.ID, "Phone"); err == nil {
					made.Add(1)
				}
			})
		}
		if wg.Wait(); made.Load() != 20 {
			t.Errorf("%d links were made at once", made.Load())
		}
		_, err = h.CreateProfileLink(ctx, h.account, bob.ID, "Phone")
		wantKind(t, err, fault.RateLimited, "too_many_links")
	})
}
