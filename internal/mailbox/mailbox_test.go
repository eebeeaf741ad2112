// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestCreate(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box, password, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "Ann.Lee", DisplayName: "Ann", QuotaMB: new(3000)})
		if err != nil {
			t.Fatal(err)
		}
		if box.Address != "Ann.Lee@demo.test" || box.Quota != 3000<<20 || credential.CheckNewPassword("p", password) != nil {
			t.Errorf("made %+v with password of %d letters", box, len(password))
		}
		if got, err := h.Get(ctx, h.account, box.ID); err != nil || got != box {
			t.Errorf("got %+v, %v\nwant %+v", got, err, box)
		}
		_, _, err = h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "ann.lee"})
		wantKind(t, err, fault.Conflict, "address_taken")
		_, err = h.Get(ctx, h.account+1, box.ID)
		wantKind(t, err, fault.NotFound, "not_found")
		_, _, err = h.Create(ctx, h.account+1, mailbox.CreateParams{Domain: h.domain, LocalPart: "eve"})
		wantKind(t, err, fault.NotFound, "not_found")

		var kind, data string
		count := db.SQL(`SELECT kind, data FROM event WHERE account = $1`)
		if err := h.db.One(ctx, count.With(h.account), &kind, &data); err != nil || kind != event.MailboxCreated {
			t.Errorf("event %s %s, %v", kind, data, err)
		}
		given := h.create("bob", good)
		if _, err := h.Authenticate(ctx, mailbox.IMAP, given.Address, good, here); err != nil {
			t.Error(err)
		}
	})
}

func TestCreateTellsAllFaults(t *testing.T) {
	each(t, func(h *fixture) {
		_, _, err := h.Create(h.t.Context(), h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "b-x", Password: new("short"), DisplayName: "a\nb", QuotaMB: new(0)})
		var f *fault.Error
		if !errors.As(err, &f) {
			h.t.Fatal(err)
		}
		var fields []string
		for _, one := range f.Fields {
			fields = append(fields, one.Path+" "+one.Code)
		}
		want := []string{"local_part reserved_local_part", "password too_short", "password missing_uppercase", "password missing_digit",
			"password missing_special", "display_name invalid_display_name", "quota_mb out_of_range"}
		if !slices.Equal(fields, want) {
			h.t.Errorf("fields %q", fields)
		}
	})
}

func TestChange(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box := h.create("ann", good)
		got, err := h.Update(ctx, h.account, box.ID, mailbox.Change{DisplayName: new("Ann"), QuotaMB: new(9999)})
		if err != nil || got.DisplayName != "Ann" || got.Quota != 9999<<20 || got.Status != mailbox.StatusActive {
			t.Errorf("changed to %+v, %v", got, err)
		}
		got, err = h.Update(ctx, h.account, box.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)})
		if err != nil || got.DisplayName != "Ann" || got.Status != mailbox.StatusSuspended {
			t.Errorf("suspended: %+v, %v", got, err)
		}
		_, err = h.Authenticate(ctx, mailbox.IMAP, box.Address, good, here)
		wantKind(t, err, fault.Denied, "mailbox_suspended")
		_, err = h.Resolve(ctx, addr(t, box.Address))
		wantKind(t, err, fault.Denied, mailbox.CodeMailboxSuspended)
		_, err = h.Update(ctx, h.account+1, box.ID, mailbox.Change{DisplayName: new("Eve")})
		wantKind(t, err, fault.NotFound, "not_found")
		_, err = h.Update(ctx, h.account, box.ID, mailbox.Change{Status: new("gone"), QuotaMB: new(10_001)})
		wantKind(t, err, fault.Invalid, "validation_failed")
	})
}

func TestDelete(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box := h.create("ann", good)
		if _, err := h.Resolve(ctx, addr(t, box.Address)); err != nil {
			t.Fatal(err)
		}
		wantKind(t, h.Delete(ctx, h.account+1, box.ID), fault.NotFound, "not_found")
		if err := h.Delete(ctx, h.account, box.ID); err != nil {
			t.Fatal(err)
		}
		wantKind(t, h.Delete(ctx, h.account, box.ID), fault.NotFound, "not_found")
		_, err := h.Resolve(ctx, addr(t, box.Address))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
		_, err = h.Authenticate(ctx, mailbox.IMAP, box.Address, good, here)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		list, _, err := h.List(ctx, h.account, mailbox.Filter{Deleted: true, Domain: h.domain}, db.Page{})
		if err != nil || len(list) != 1 || list[0].ID != box.ID || list[0].DeletedAt.IsZero() {
			t.Errorf("deleted: %+v, %v", list, err)
		}

		again := h.create("ann", good)
		_, err = h.Restore(ctx, h.account, box.ID)
		wantKind(t, err, fault.Conflict, "address_taken")
		if err := h.Delete(ctx, h.account, again.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.Restore(ctx, h.account+1, box.ID)
		wantKind(t, err, fault.NotFound, "not_found")
		if got, err := h.Restore(ctx, h.account, box.ID); err != nil || got.ID != box.ID {
			t.Errorf("restored %+v, %v", got, err)
		}
		_, err = h.Restore(ctx, h.account, box.ID)
		wantKind(t, err, fault.Conflict, "not_deleted")

		h.now = h.now.Add(mailbox.RestorePeriod + time.Hour)
		_, err = h.Restore(ctx, h.account, again.ID)
		wantKind(t, err, fault.NotFound, "not_found")
		if n, err := h.Purge(ctx); n != 0 || err != nil {
			t.Errorf("purged %d too early, %v", n, err)
		}
		h.now = h.now.Add(24 * time.Hour)
		h.join("first")
		ended, end := context.WithCancel(ctx)
		end()
		if err := h.Node.MaintainLease(ended); err != nil { // the node leaves
			t.Fatal(err)
		}
		if n, err := h.Purge(ctx); n != 0 || err != nil {
			t.Errorf("purged %d by a node that may start nothing, %v", n, err)
		}
		h.join("first")
		if n, err := h.Purge(ctx); n != 1 || err != nil || !slices.Equal(h.emptied, []db.ID{again.ID}) {
			t.Errorf("purged %d, %v; emptied %v", n, err, h.emptied)
		}
		if _, err := h.Get(ctx, h.account, box.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestSearch(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		for _, n := range []mailbox.CreateParams{{LocalPart: "Ann.Lee", DisplayName: "Ann Lee"}, {LocalPart: "bob", DisplayName: "50% Bob"}, {LocalPart: "c_d"}} {
			n.Domain = h.domain
			if _, _, err := h.Create(ctx, h.account, n); err != nil {
				t.Fatal(err)
			}
		}
		for search, want := range map[string]int{"": 3, "LEE": 1, "b": 1, "ann l": 1, "demo.test": 3, "%": 1, "_": 1, "!": 0, "\x00": 0, " bob ": 1, strings.Repeat("a", 300): 0} {
			list, _, err := h.List(ctx, h.account, mailbox.Filter{Search: search}, db.Page{})
			if err != nil || len(list) != want {
				t.Errorf("%.20q finds %d, %v", search, len(list), err)
			}
		}
		box, err := h.Get(ctx, h.account, h.create("dan", good).ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Delete(ctx, h.account, box.ID); err != nil {
			t.Fatal(err)
		}
		list, _, err := h.List(ctx, h.account, mailbox.Filter{Deleted: true, Search: "dan"}, db.Page{})
		if err != nil || len(list) != 1 || list[0].Generation() == box.Generation() {
			t.Errorf("of the deleted %+v, %v", list, err)
		}
	})
}

// The former owner of a domain can still read old mail but receives none.
func TestChangeOfHands(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		old := h.create("ann", good)
		release := db.SQL(`UPDATE domain SET owned = FALSE WHERE id = $1`)
		dbtest.Exec(h.t, h.db, release.With(h.domain))
		h.account = h.newAccount(h.Accounts, "second@example.com")
		h.domain = h.newDomain(h.account, true)
		h.holder = h.domain
		fresh := h.create("ann", "Another-horse-8")
		if got, err := h.Resolve(ctx, addr(t, "ann@demo.test")); err != nil || got.Mailbox != fresh.ID {
			t.Errorf("mail goes to %+v, %v", got, err)
		}
		for password, want := range map[string]db.ID{good: old.ID, "Another-horse-8": fresh.ID} {
			if got, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", password, here); err != nil || got.ID != want {
				t.Errorf("signed in to %s, %v; want %s", got.ID, err, want)
			}
		}
	})
}
