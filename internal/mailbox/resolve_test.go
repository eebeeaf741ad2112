// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestResolve(t *testing.T) {
	each(t, func(h *house) {
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
		h.Operator = "bob@demo.test"
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
			for range 2 { // the second time it is known
				got, err := h.Resolve(ctx, c.to)
				if err != nil || got.Mailbox != c.box || got.Tag != c.tag || got.Account != h.account || got.Domain != h.domain {
					t.Errorf("%v: %+v, %v", c.to, got, err)
				}
			}
		}
		_, err = h.Resolve(ctx, addr(t, "bob@elsewhere.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNotHosted)
		_, err = h.Resolve(ctx, addr(t, "carol@demo.test"))
		wantKind(t, err, fault.NotFound, mailbox.CodeNoMailbox)
		own := h.create("postmaster", good)
		if got, err := h.Resolve(ctx, addr(t, "postmaster@demo.test")); err != nil || got.Mailbox != own.ID {
			t.Errorf("its own postmaster: %+v, %v", got, err)
		}
	})
}

// Mail to the service's own postmaster finds somebody as long as there is
// anybody (RFC 5321 §4.5.1).
func TestResolveOperator(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		ann, bob := h.create("ann", good), h.create("bob", good)
		suspended := mailbox.Suspended
		for _, c := range []struct {
			operator string
			change   func() error
			want     db.ID
		}{
			{"", nil, ann.ID},
			{"bob+root@demo.test", nil, bob.ID},
			{"nobody@demo.test", nil, ann.ID},
			{"bob@elsewhere.test", nil, ann.ID},
			{"bob@demo.test", func() error {
				_, err := h.Update(ctx, h.account, bob.ID, mailbox.Change{Status: &suspended})
				return err
			}, ann.ID},
			{"ann@demo.test", func() error {
				if err := h.Delete(ctx, h.account, ann.ID); err != nil {
					return err
				}
				active := mailbox.Active
				_, err := h.Update(ctx, h.account, bob.ID, mailbox.Change{Status: &active})
				return err
			}, bob.ID},
		} {
			h.Operator = c.operator
			if c.change != nil {
				if err := c.change(); err != nil {
					t.Fatal(err)
				}
			}
			h.ForgetAll()
			for _, to := range []address.Address{{Local: "postmaster"}, addr(t, "abuse@mail.host.test")} {
				if got, err := h.Resolve(ctx, to); err != nil || got.Mailbox != c.want {
					t.Errorf("operator %q, %v: %+v, %v", c.operator, to, got, err)
				}
			}
		}
	})
}
