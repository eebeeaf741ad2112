// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestResolve(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		if used, err := h.anyMailbox(); used || err != nil {
			t.Errorf("an empty domain has mailboxes: %v, %v", used, err)
		}
		_, err := h.Resolve(ctx, addr(t, "postmaster@demo.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
		ann, bob := h.create("ann", good), h.create("bob", good)
		if used, err := h.anyMailbox(); !used || err != nil {
			t.Errorf("a domain in use has mailboxes: %v, %v", used, err)
		}
		h.Postmaster = "bob@demo.test"
		for _, c := range []struct {
			to  address.Address
			box db.ID
			tag string
		}{
			{addr(t, "Bob@demo.test"), bob.ID, ""},
			{addr(t, "bob+a+b@demo.test"), bob.ID, "a+b"},
			{addr(t, "postmaster@demo.test"), ann.ID, ""},
			{addr(t, "Abuse@demo.test"), ann.ID, ""},
			{address.Address{Local: "Postmaster"}, bob.ID, ""},
			{addr(t, "postmaster@mail.host.test"), bob.ID, ""},
		} {
			for range 2 { // the second time it is cached
				got, err := h.Resolve(ctx, c.to)
				if err != nil || got.Mailbox != c.box || got.Tag != c.tag || got.Account != h.account || got.Domain != h.domain {
					t.Errorf("%v: %+v, %v", c.to, got, err)
				}
			}
		}
		_, err = h.Resolve(ctx, addr(t, "bob@elsewhere.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeDomainNotHosted)
		_, err = h.Resolve(ctx, addr(t, "carol@demo.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
		own := h.create("postmaster", good)
		if got, err := h.Resolve(ctx, addr(t, "postmaster@demo.test")); err != nil || got.Mailbox != own.ID {
			t.Errorf("its own postmaster: %+v, %v", got, err)
		}
	})
}

// Mail to the role addresses of the host goes only to the operator's address, in any place. While
// that can't receive mail, nobody gets it.
func TestRouteOfHostRoles(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann, bob := h.create("ann", good), h.create("bob", good)
		h.alias("ops@demo.test", bob.ID.String(), "far@elsewhere.test")
		update := func(status string) func() error {
			return func() error {
				_, err := h.Update(ctx, h.account, bob.ID, mailbox.Change{Status: &status})
				return err
			}
		}
		for _, c := range []struct {
			operator  string
			change    func() error
			box       db.ID
			elsewhere string
		}{
			{"bob+root@demo.test", nil, bob.ID, ""},
			{"far@elsewhere.test", nil, 0, "far@elsewhere.test"},
			{"ops@demo.test", nil, bob.ID, "far@elsewhere.test"},
			{"abuse@demo.test", nil, ann.ID, ""},
			{"nobody@demo.test", nil, 0, ""},
			{"", nil, 0, ""},
			{"root@mail.host.test", nil, 0, ""},
			{"postmaster@bounces.mail.host.test", nil, 0, ""},
			{"bob@demo.test", update(mailbox.StatusSuspended), 0, ""},
			{"ops@demo.test", nil, 0, "far@elsewhere.test"},
			{"bob@demo.test", update(mailbox.StatusActive), bob.ID, ""},
			{"bob@demo.test", func() error { return h.accounts.SetStatus(ctx, h.account, account.StatusSuspended) }, 0, ""},
			{"ops@demo.test", nil, 0, "far@elsewhere.test"},
			{"bob@demo.test", func() error { return h.accounts.SetStatus(ctx, h.account, account.StatusActive) }, bob.ID, ""},
			{"bob@demo.test", func() error { return h.Delete(ctx, h.account, bob.ID) }, 0, ""},
		} {
			h.Postmaster = c.operator
			if c.change != nil {
				if err := c.change(); err != nil {
					t.Fatal(err)
				}
			}
			h.InvalidateAll()
			for _, to := range []address.Address{{Local: "Postmaster"}, addr(t, "abuse@mail.host.test"), addr(t, "postmaster@bounces.mail.host.test")} {
				got, err := h.Route(ctx, to)
				if c.box == 0 && c.elsewhere == "" {
					wantKind(t, err, fault.Unavailable, mailbox.CodeNoPostmaster)
					continue
				}
				box, elsewhere := db.ID(0), ""
				if len(got.Mailboxes) > 0 {
					box = got.Mailboxes[0].Mailbox
				}
				if len(got.Forwards) > 0 {
					elsewhere = got.Forwards[0].String()
				}
				if err != nil || box != c.box || elsewhere != c.elsewhere || len(got.Mailboxes) > 1 || len(got.Forwards) > 1 {
					t.Errorf("operator %q, %v: %+v, %v", c.operator, to, got, err)
				}
				if elsewhere != "" && (got.Account != account.OperatorAccount || got.Forwarder != account.OperatorAccount || !got.RoleMail) {
					t.Errorf("operator %q, %v: it goes on in the name of %+v", c.operator, to, got)
				}
			}
		}
		_, err := h.Route(ctx, addr(t, "ann@mail.host.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeDomainNotHosted)
	})
}

// Mail to the role addresses of a domain stays with the domain's account: in its mailboxes, or with
// its owners. No other account's mailbox gets it, however old, and neither does the operator.
func TestRouteOfDomainRoles(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		oldest := h.create("oldest", good)
		h.Postmaster = "oldest@demo.test"
		other := h.newAccount(h.accounts, "other@example.com")
		second, third := h.newDomainNamed(other, "second.test"), h.newDomainNamed(other, "third.test")
		var owners []address.Address
		h.OwnerAddresses = func(_ context.Context, account db.ID) ([]address.Address, error) {
			if account != other {
				t.Errorf("the owners of %d are asked for", account)
			}
			return owners, nil
		}
		wants := func(what string, box db.ID, elsewhere ...string) {
			t.Helper()
			h.InvalidateAll()
			for _, to := range []string{"postmaster@second.test", "Abuse@second.test"} {
				got, err := h.Route(ctx, addr(t, to))
				if box == 0 && len(elsewhere) == 0 {
					wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
					continue
				}
				var boxes []db.ID
				var out []string
				for _, m := range got.Mailboxes {
					boxes = append(boxes, m.Mailbox)
				}
				for _, a := range got.Forwards {
					out = append(out, a.String())
				}
				if err != nil || box != 0 && !slices.Equal(boxes, []db.ID{box}) || box == 0 && len(boxes) > 0 || !slices.Equal(out, elsewhere) {
					t.Errorf("%s: %s goes to %v and %v, %v", what, to, boxes, out, err)
				}
				if box == 0 && (got.Account != other || got.Domain != second || got.Forwarder != other || !got.RoleMail) {
					t.Errorf("%s: it goes on in the name of %+v", what, got)
				}
			}
		}
		wants("without mailbox and owner", 0)
		owners = []address.Address{addr(t, "postmaster@second.test"), addr(t, "root@mail.host.test"), addr(t, "abuse@third.test")}
		wants("with owners that lead back", 0)
		owners = append(owners, addr(t, "eve@far.test"), addr(t, "oldest@demo.test"))
		wants("with owners", 0, "eve@far.test", "oldest@demo.test")
		for range 20 {
			owners = append(owners, addr(t, "more@far.test"))
		}
		h.InvalidateAll()
		if got, err := h.Route(ctx, addr(t, "postmaster@second.test")); err != nil || len(got.Forwards) > 10 {
			t.Errorf("of many owners: %+v, %v", got, err)
		}
		create := func(domain db.ID, local string) mailbox.Mailbox {
			box, _, err := h.Create(ctx, other, mailbox.CreateParams{Domain: domain, LocalPart: local})
			if err != nil {
				t.Fatal(err)
			}
			return box
		}
		elsewhere := create(third, "ann")
		wants("with a mailbox of another domain", elsewhere.ID)
		own := create(second, "bob")
		wants("with a mailbox of the domain", own.ID)
		if _, err := h.Update(ctx, other, own.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)}); err != nil {
			t.Fatal(err)
		}
		wants("while that is suspended", elsewhere.ID)
		if _, err := h.Update(ctx, other, own.ID, mailbox.Change{Status: new(mailbox.StatusActive)}); err != nil {
			t.Fatal(err)
		}
		for _, local := range []string{"postmaster", "abuse"} {
			if _, err := h.CreateAlias(ctx, other, local+"@second.test", []string{elsewhere.ID.String()}); err != nil {
				t.Fatal(err)
			}
		}
		wants("with aliases", elsewhere.ID)
		if err := h.Delete(ctx, other, elsewhere.ID); err != nil {
			t.Fatal(err)
		}
		wants("with aliases that lead nowhere", own.ID)
		if got, err := h.Resolve(ctx, addr(t, "postmaster@demo.test")); err != nil || got.Mailbox != oldest.ID {
			t.Errorf("the first account's: %+v, %v", got, err)
		}
	})
}
