// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func (h *fixture) alias(addr string, targets ...string) mailbox.Alias {
	h.t.Helper()
	a, err := h.CreateAlias(h.t.Context(), h.account, addr, targets)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func TestMayUse(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box, bob := h.create("Ann", good), h.create("bob", good)
		h.alias("sales@demo.test", bob.ID.String(), box.ID.String())
		h.alias("root@demo.test", bob.ID.String())
		h.alias("*@demo.test", box.ID.String())
		for a, want := range map[string]bool{
			"ann@demo.test": true, "ann+shop@DEMO.test": true, "bob@demo.test": false, "ann@demo.example": false,
			"Sales@demo.test": true, "sales+x@demo.test": true, "root@demo.test": false,
			"anything@demo.test": true, "postmaster@demo.test": false, "anything@sub.demo.test": false,
		} {
			if got, err := h.MaySendAs(ctx, box, addr(t, a)); got != want || err != nil {
				t.Errorf("%s: %v, %v", a, got, err)
			}
		}
		if got, err := h.MaySendAs(ctx, bob, addr(t, "anything@demo.test")); got || err != nil {
			t.Errorf("another's catch-all: %v, %v", got, err)
		}
		// The former owner of the domain may not use the new owner's address.
		other := bob
		other.Account++
		if got, err := h.MaySendAs(ctx, other, addr(t, "sales@demo.test")); got || err != nil {
			t.Errorf("another account's alias: %v, %v", got, err)
		}
	})
}

func TestAliasRoutes(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann, bob, eve := h.create("ann", good), h.create("bob", good), h.create("eve", good)
		to := func(a string) (list []db.ID, tag string) {
			t.Helper()
			route, err := h.Route(ctx, addr(t, a))
			if err != nil {
				t.Fatalf("%s: %v", a, err)
			}
			for _, r := range route.Mailboxes {
				if r.Account != h.account || !strings.HasSuffix(r.Address, "@demo.test") {
					t.Errorf("%s: %+v", a, r)
				}
				list, tag = append(list, r.Mailbox), r.Tag
			}
			return list, tag
		}
		wants := func(a, tag string, want ...mailbox.Mailbox) {
			t.Helper()
			var ids []db.ID
			for _, w := range want {
				ids = append(ids, w.ID)
			}
			for range 2 { // the second time it is cached
				if got, with := to(a); !slices.Equal(got, ids) || with != tag {
					t.Errorf("%s leads to %v with %q, want %v", a, got, with, ids)
				}
			}
		}
		team := h.alias("Team@demo.test", "bob@demo.test", ann.ID.String(), bob.ID.String())
		if team.Address != "Team@demo.test" || len(team.Targets) != 2 {
			t.Errorf("made %+v", team)
		}
		wants("team@demo.test", "", bob, ann)
		wants("TEAM+x@demo.test", "x", bob, ann)
		if got, err := h.Resolve(ctx, addr(t, "team@demo.test")); err != nil || got.Mailbox != bob.ID {
			t.Errorf("resolved to %+v, %v", got, err)
		}

		wants("postmaster@demo.test", "", ann) // the first mailbox
		h.alias("postmaster@demo.test", eve.ID.String())
		wants("postmaster@demo.test", "", eve)

		// A catch-all receives mail to all other addresses.
		_, err := h.Route(ctx, addr(t, "whoever@demo.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
		rest := h.alias("*@demo.test", eve.ID.String())
		wants("whoever+x@demo.test", "x", eve)
		wants("abuse@demo.test", "", ann)
		wants("ann@demo.test", "", ann)
		if err := h.DeleteAlias(ctx, h.account, rest.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.Route(ctx, addr(t, "whoever@demo.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)

		// A suspended or deleted target gets nothing; the others still do.
		if _, err := h.Update(ctx, h.account, bob.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)}); err != nil {
			t.Fatal(err)
		}
		wants("team@demo.test", "", ann)
		if err := h.Delete(ctx, h.account, ann.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.Route(ctx, addr(t, "team@demo.test"))
		wantKind(t, err, fault.Denied, mailbox.CodeMailboxSuspended)
		if err := h.Delete(ctx, h.account, bob.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.Route(ctx, addr(t, "team@demo.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
		if _, err := h.Restore(ctx, h.account, ann.ID); err != nil {
			t.Fatal(err)
		}
		wants("team@demo.test", "", ann)

		// Mail to postmaster is never rejected, no matter where it leads.
		if _, err := h.Update(ctx, h.account, eve.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)}); err != nil {
			t.Fatal(err)
		}
		wants("postmaster@demo.test", "", ann)
		if _, err := h.UpdateAlias(ctx, h.account, team.ID, []string{eve.ID.String()}); err != nil {
			t.Fatal(err)
		}
		_, err = h.Route(ctx, addr(t, "team@demo.test"))
		wantKind(t, err, fault.Denied, mailbox.CodeMailboxSuspended)
	})
}

// An address belongs to a mailbox or to an alias. A duplicate target, in any spelling, gets one
// copy.
func TestAliasTargetsOnce(t *testing.T) {
	each(t, func(h *fixture) {
		ann := h.create("ann", good)
		a := h.alias("team@demo.test", "Bob@far.example", ann.ID.String(), "bob@FAR.example", "Ann@demo.test", "bob+x@far.example")
		if got := fmt.Sprint(a.Targets); got != "[Bob@far.example ann@demo.test bob+x@far.example]" {
			h.t.Errorf("it leads to %s", got)
		}
		// A deleted mailbox is no target while it is deleted.
		ctx, elsewhere := h.t.Context(), "[Bob@far.example bob+x@far.example]"
		deleted := h.Delete(ctx, h.account, ann.ID)
		without, err := h.GetAlias(ctx, h.account, a.ID)
		if deleted != nil || err != nil || fmt.Sprint(without.Targets) != elsewhere {
			h.t.Errorf("without ann: %v, %v, %v", without.Targets, deleted, err)
		}
		_, restored := h.Restore(ctx, h.account, ann.ID)
		with, err := h.GetAlias(ctx, h.account, a.ID)
		if restored != nil || err != nil || fmt.Sprint(with.Targets) != fmt.Sprint(a.Targets) {
			h.t.Errorf("with ann again: %v, %v, %v", with.Targets, restored, err)
		}
		a, err = h.UpdateAlias(ctx, h.account, a.ID, []string{"eve@far.example", "EVE@far.example"})
		if err != nil || len(a.Targets) != 1 {
			h.t.Errorf("it leads to %v, %v", a.Targets, err)
		}
	})
}

func TestAliasConflicts(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		a := h.alias("info@demo.test", ann.ID.String())
		for _, taken := range []string{"INFO@demo.test", "Ann@demo.test"} {
			_, err := h.CreateAlias(ctx, h.account, taken, []string{ann.ID.String()})
			wantKind(t, err, fault.Conflict, "address_taken")
		}
		_, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "Info"})
		wantKind(t, err, fault.Conflict, "address_taken")

		// A mailbox whose address is in use can't be restored.
		if err := h.Delete(ctx, h.account, ann.ID); err != nil {
			t.Fatal(err)
		}
		bob := h.create("bob", good)
		again := h.alias("ann@demo.test", bob.ID.String())
		_, err = h.Restore(ctx, h.account, ann.ID)
		wantKind(t, err, fault.Conflict, "address_taken")
		if err := h.DeleteAlias(ctx, h.account, again.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Restore(ctx, h.account, ann.ID); err != nil {
			t.Error(err)
		}

		// Aliases of other accounts are not found.
		_, err = h.GetAlias(ctx, h.account+1, a.ID)
		wantKind(t, err, fault.NotFound, "not_found")
		_, err = h.UpdateAlias(ctx, h.account+1, a.ID, []string{bob.ID.String()})
		wantKind(t, err, fault.NotFound, "not_found")
		wantKind(t, h.DeleteAlias(ctx, h.account+1, a.ID), fault.NotFound, "not_found")
		if list, more, err := h.Aliases(ctx, h.account, h.domain, db.Page{}); err != nil || more || len(list) != 1 || list[0].ID != a.ID || len(list[0].Targets) != 1 {
			t.Errorf("listed %+v, %v", list, err)
		}
		if list, _, err := h.Aliases(ctx, h.account+1, 0, db.Page{}); err != nil || len(list) != 0 {
			t.Errorf("another account sees %+v, %v", list, err)
		}
	})
}

// If a mailbox and an alias are created concurrently for one address, exactly one succeeds.
func TestAliasRace(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob := h.create("bob", good)
		for _, local := range []string{"one", "two", "three"} {
			var wg sync.WaitGroup
			errs := make([]error, 6)
			for i := range errs {
				wg.Go(func() {
					if i%2 == 0 {
						_, errs[i] = h.CreateAlias(ctx, h.account, local+"@demo.test", []string{bob.ID.String()})
					} else {
						_, _, errs[i] = h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: local, Password: new(good)})
					}
				})
			}
			wg.Wait()
			made := 0
			for _, err := range errs {
				if err == nil {
					made++
				} else {
					wantKind(t, err, fault.Conflict, "address_taken")
				}
			}
			if made != 1 {
				t.Errorf("%s was made %d times", local, made)
			}
		}
	})
}

func TestAliasFaults(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		long := slices.Repeat([]string{ann.ID.String()}, mailbox.MaxTargets+1)
		for _, c := range []struct {
			address string
			targets []string
			want    string
		}{
			{"info", nil, "address invalid_address,targets wrong_number"},
			{"b-x@demo.test", long, "address reserved_local_part,targets wrong_number"},
			{"a+b@demo.test", []string{"x"}, "address invalid_local_part,targets[0] not_found"},
			{"info@elsewhere.test", []string{"ann@demo.test", "carol@demo.test", "@"}, "address domain_not_yours,targets[1] not_found,targets[2] invalid_address"},
			{"info@demo.test", []string{h.db.NewID().String()}, "targets[0] not_found"},
		} {
			_, err := h.CreateAlias(ctx, h.account, c.address, c.targets)
			var fields []string
			if f, ok := errors.AsType[*fault.Error](err); ok {
				for _, one := range f.Fields {
					fields = append(fields, one.Path+" "+one.Code)
				}
			}
			if got := strings.Join(fields, ","); got != c.want {
				t.Errorf("%s: %q, %v", c.address, got, err)
			}
		}
		for _, c := range []struct {
			address string
			targets []string
			ok      bool
		}{{"abuse@demo.test", []string{"x@example.org"}, false}, {"abuse@demo.test", []string{"x@example.org", "ann@demo.test"}, true}, {"out@demo.test", []string{"X@Example.org"}, true}} {
			a, err := h.CreateAlias(ctx, h.account, c.address, c.targets)
			if c.ok != (err == nil) || !c.ok && !fault.Is(err, fault.Invalid) || c.ok && len(a.Targets) != len(c.targets) {
				t.Errorf("%s to %v: %+v, %v", c.address, c.targets, a, err)
			}
		}
		route, err := h.Route(ctx, addr(t, "out@demo.test"))
		if err != nil || len(route.Mailboxes) != 0 || !slices.Equal(route.Forwards, []address.Address{addr(t, "X@example.org")}) || route.Account != h.account || route.Domain != h.domain {
			t.Errorf("leads to %+v, %v", route, err)
		}
		// Another account's mailboxes are no targets.
		_, err = h.ParseTargets(ctx, h.account+1, []string{ann.ID.String()})
		wantKind(t, err, fault.Invalid, "validation_failed")
		if got, err := h.ParseTargets(ctx, h.account+1, []string{"ann@demo.test"}); err != nil || got[0].Mailbox != 0 {
			t.Errorf("another account's address is %+v, %v", got, err)
		}
		if _, err := h.Route(ctx, address.Address{Local: "info", Domain: "demo.test"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("an alias was made: %v", err)
		}
		h.alias("only@demo.test", ann.ID.String())
		if err := h.Delete(ctx, h.account, ann.ID); err != nil {
			t.Fatal(err)
		}
		h.now = h.now.Add(2 * mailbox.RestorePeriod)
		if n, err := h.Purge(ctx); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		list, _, err := h.Aliases(ctx, h.account, 0, db.Page{})
		if err != nil || len(list) != 3 || len(list[0].Targets) != 0 {
			t.Errorf("left: %+v, %v", list, err)
		}
		if used, err := h.anyMailbox(); !used || err != nil {
			t.Errorf("a domain with an alias is unused: %v", err)
		}
	})
}
