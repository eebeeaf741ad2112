// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// open returns the sessions of a mailbox, newest first.
func (h *fixture) open(of mailbox.Mailbox) string {
	h.t.Helper()
	list, _, err := h.Sessions(h.t.Context(), h.account, of.ID, db.Page{})
	if err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for _, s := range list {
		all = append(all, strings.TrimSpace(fmt.Sprint(s.Protocol, " ", s.Address, " ", s.AppPassword, "/", s.Program)))
	}
	return strings.Join(all, ", ")
}

func (h *fixture) wantOpen(of mailbox.Mailbox, want string) {
	h.t.Helper()
	if got := h.open(of); got != want {
		h.t.Errorf("open: %q, want %q", got, want)
	}
}

var (
	endLease = db.SQL(`UPDATE lease SET expires_at = 0 WHERE id = $1`)
	anyOpen  = db.SQL(`SELECT COUNT(*) FROM mailbox_session`)
)

// join starts a node of this name for the sessions, after the previous one ended without releasing
// its lease.
func (h *fixture) join(name string) {
	h.t.Helper()
	if h.Node != nil {
		leaseID, _ := h.Node.Lease()
		dbtest.Exec(h.t, h.db, endLease.With(leaseID))
	}
	var err error
	if h.Node, err = lease.Join(h.t.Context(), h.db, lease.Options{Name: name, Holder: name}); err != nil {
		h.t.Fatal(err)
	}
}

// TestSessions checks that sessions are listed while they are open, no matter whether they were
// written already.
func TestSessions(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		h.join("first")
		ann, bob := h.create("ann", good), h.create("bob", good)
		_, password := h.app(ann, "Phone", "imap")
		in := func(password, from string) db.ID {
			t.Helper()
			box, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", password, netip.MustParseAddr(from))
			if err != nil {
				t.Fatal(err)
			}
			return h.OpenSession(box, mailbox.IMAP, netip.MustParseAddr(from))
		}
		first := in(good, "::ffff:192.0.2.7")
		h.SetSessionProgram(first, "Thunderbird 140")
		h.wantOpen(ann, "imap 192.0.2.7 /Thunderbird 140")
		h.wantOpen(bob, "")
		second := in(password, "2001:db8::7")
		h.wantOpen(ann, "imap 2001:db8::7 Phone/, imap 192.0.2.7 /Thunderbird 140")
		h.SetSessionProgram(second, "Mail 16")
		h.CloseSession(in(good, "192.0.2.9")) // closed before it was written
		h.wantOpen(ann, "imap 2001:db8::7 Phone/Mail 16, imap 192.0.2.7 /Thunderbird 140")
		h.CloseSession(first)
		h.CloseSession(first)
		h.SetSessionProgram(first, "late")
		h.wantOpen(ann, "imap 2001:db8::7 Phone/Mail 16")
		if _, _, err := h.Sessions(ctx, h.account+1, ann.ID, db.Page{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("another account: %v", err)
		}

		// A node that ended without releasing its lease has no sessions. After a lost lease, the
		// next lease has them.
		leaseID, _ := h.Node.Lease()
		dbtest.Exec(t, h.db, endLease.With(leaseID))
		h.wantOpen(ann, "")
		h.join("second")
		h.wantOpen(ann, "imap 2001:db8::7 Phone/Mail 16")
		h.CloseSession(second)
		h.wantOpen(ann, "")

		h.OpenSession(ann, mailbox.IMAP, netip.MustParseAddr("192.0.2.1"))
		h.wantOpen(ann, "imap 192.0.2.1 /")
		h.join("third")
		if err := h.DropSessions(ctx); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := h.db.One(ctx, anyOpen.With(), &left); err != nil || left != 0 {
			t.Errorf("%d rows are left of nodes that ended, %v", left, err)
		}
		h.wantOpen(ann, "imap 192.0.2.1 /") // it is still there
	})
}

var takeOn = db.SQL(`UPDATE mailbox_session SET lease = $1`)

// Sessions that the next lease of their node takes over stay listed, even if they are being deleted
// with the lost lease.
func TestDropSessionsSparesThoseTakenOn(t *testing.T) {
	each(t, func(h *fixture) {
		ctx := t.Context()
		h.join("first")
		ann := h.create("ann", good)
		h.OpenSession(ann, mailbox.IMAP, netip.MustParseAddr("192.0.2.7"))
		h.wantOpen(ann, "imap 192.0.2.7 /")
		h.join("second")
		leaseID, _ := h.Node.Lease()
		dropped := make(chan error, 1)
		err := h.db.Tx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, takeOn.With(leaseID)); err != nil {
				return err
			}
			go func() { dropped <- h.DropSessions(ctx) }()
			return dbtest.AwaitBlocked(ctx, h.db, tx, "DELETE%")
		})
		var left int
		if err := errors.Join(err, <-dropped, h.db.One(ctx, anyOpen.With(), &left)); err != nil || left != 1 {
			t.Errorf("%d rows are left: %v", left, err)
		}
	})
}
