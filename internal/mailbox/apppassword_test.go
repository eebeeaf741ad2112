// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func (h *fixture) app(box mailbox.Mailbox, name string, protocols ...string) (mailbox.AppPassword, string) {
	h.t.Helper()
	p, password, err := h.CreateAppPassword(h.t.Context(), h.account, box.ID, name, protocols)
	if err != nil {
		h.t.Fatal(err)
	}
	return p, password
}

func TestAppPassword(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann, bob := h.create("ann", good), h.create("bob", good)
		phone, password := h.app(ann, "Phone", "imap")
		if len(password) != 26+4 || strings.Count(password, "-") != 4 {
			t.Errorf("generated a password of %d letters", len(password))
		}
		for _, typed := range []string{password, strings.ToUpper(password), strings.ReplaceAll(password, "-", ""), strings.ReplaceAll(password, "-", " ")} {
			if box, err := h.Authenticate(ctx, mailbox.IMAP, "Ann@demo.test", typed, here); err != nil || box.ID != ann.ID {
				t.Errorf("signed in to %v, %v", box.ID, err)
			}
		}
		for _, p := range []mailbox.Protocol{mailbox.SMTP, mailbox.Web} {
			_, err := h.Authenticate(ctx, p, "ann@demo.test", password, here)
			wantKind(t, err, fault.Denied, "wrong_protocol")
		}
		_, err := h.Authenticate(ctx, mailbox.IMAP, "bob@demo.test", password, here)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		_, both := h.app(ann, "Laptop", "smtp", "imap")
		if _, err := h.Authenticate(ctx, mailbox.SMTP, "ann@demo.test", both, here); err != nil {
			t.Error(err)
		}

		list, more, err := h.AppPasswords(ctx, h.account, ann.ID, db.Page{})
		if err != nil || more || len(list) != 2 || list[0].Name != "Laptop" || len(list[0].Protocols) != 2 || list[1].ID != phone.ID {
			t.Fatalf("listed %+v, %v", list, err)
		}
		if used := list[1].LastUsedAt; !used.Equal(h.now.UTC().Truncate(time.Hour)) {
			t.Errorf("last used %v", used)
		}

		// Changing the mailbox's own password ends its sessions but no app password.
		session, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", password, here)
		if err != nil {
			t.Fatal(err)
		}
		own, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here)
		if err != nil {
			t.Fatal(err)
		}
		var told []db.ID
		h.OnRevoked = func(id db.ID) { told = append(told, id) }
		wantKind(t, h.RevokeAppPassword(ctx, h.account+1, ann.ID, phone.ID), fault.NotFound, "not_found")
		wantKind(t, h.RevokeAppPassword(ctx, h.account, bob.ID, phone.ID), fault.NotFound, "not_found")
		if err := h.CheckLogin(ctx, session); err != nil || len(told) > 0 {
			t.Errorf("not revoked yet: %v, told %v", err, told)
		}
		if err := h.RevokeAppPassword(ctx, h.account, ann.ID, phone.ID); err != nil {
			t.Fatal(err)
		}
		wantKind(t, h.RevokeAppPassword(ctx, h.account, ann.ID, phone.ID), fault.NotFound, "not_found")
		wantKind(t, h.CheckLogin(ctx, session), fault.Unauthenticated, "login_revoked")
		if err := h.CheckLogin(ctx, own); err != nil || !slices.Equal(told, []db.ID{ann.ID}) {
			t.Errorf("the other session: %v, told %v", err, told)
		}
		_, err = h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", password, here)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		if _, err := h.SetPassword(ctx, h.account, ann.ID, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Authenticate(ctx, mailbox.SMTP, "ann@demo.test", both, here); err != nil {
			t.Errorf("after the own password was changed: %v", err)
		}
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)}); err != nil {
			t.Fatal(err)
		}
		_, err = h.Authenticate(ctx, mailbox.SMTP, "ann@demo.test", both, here)
		wantKind(t, err, fault.Denied, "mailbox_suspended")
	})
}

func TestAppPasswordFaults(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		for _, c := range []struct {
			name      string
			protocols []string
		}{{"", []string{"imap"}}, {"a\nb", []string{"imap"}}, {strings.Repeat("x", 101), []string{"imap"}}, {"Phone", nil}, {"Phone", []string{"web"}}, {"Phone", []string{"imap", "pop"}}} {
			_, _, err := h.CreateAppPassword(ctx, h.account, ann.ID, c.name, c.protocols)
			wantKind(t, err, fault.Invalid, "validation_failed")
		}
		_, _, err := h.CreateAppPassword(ctx, h.account+1, ann.ID, "Phone", []string{"imap"})
		wantKind(t, err, fault.NotFound, "not_found")
		_, _, err = h.AppPasswords(ctx, h.account+1, ann.ID, db.Page{})
		wantKind(t, err, fault.NotFound, "not_found")
		_, _, err = h.SignIns(ctx, h.account+1, ann.ID, db.Page{})
		wantKind(t, err, fault.NotFound, "not_found")

		// The maximum is never exceeded, even with concurrent requests.
		for i := range mailbox.MaxAppPasswords - 2 {
			h.app(ann, fmt.Sprint("device ", i), "imap")
		}
		errs := make([]error, 5)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, _, errs[i] = h.CreateAppPassword(ctx, h.account, ann.ID, "one more", []string{"imap"}) })
		}
		wg.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
			} else {
				wantKind(t, err, fault.Conflict, "too_many_app_passwords")
			}
		}
		if made != 2 {
			t.Errorf("%d too many", made-2)
		}
	})
}

// Wrong app passwords count as guesses like any others.
func TestGuessingAppPasswords(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		from := netip.MustParseAddr("198.51.100.9")
		for tries := 0; ; tries++ {
			p, password := h.app(ann, "short-lived", "imap")
			if err := h.RevokeAppPassword(ctx, h.account, ann.ID, p.ID); err != nil {
				t.Fatal(err)
			}
			_, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", password, from)
			if fault.Is(err, fault.RateLimited) && tries > 0 {
				break
			}
			wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
			if tries == 50 {
				t.Fatal("never limited")
			}
		}
	})
}

func TestSignIns(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		_, password := h.app(ann, "Phone", "imap")
		begun := h.now
		try := func(p mailbox.Protocol, password, from string) {
			t.Helper()
			_, _ = h.Authenticate(ctx, p, "ann@demo.test", password, netip.MustParseAddr(from))
		}
		lines := func() (all []string) {
			t.Helper()
			list, _, err := h.SignIns(ctx, h.account, ann.ID, db.Page{})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				all = append(all, fmt.Sprint(s.Protocol, " ", s.Address, " ", s.Result, " ", s.AppPassword, " ", s.Times, " ", s.FirstAt.Sub(begun), " ", s.LastAt.Sub(begun)))
			}
			return all
		}
		wants := func(want ...string) {
			t.Helper()
			if got := lines(); !slices.Equal(got, want) {
				t.Errorf("sign-ins\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		_, _ = h.Authenticate(ctx, mailbox.IMAP, "nobody@demo.test", good, here)
		try(mailbox.IMAP, good, "192.0.2.7")
		h.now = h.now.Add(time.Minute)
		try(mailbox.IMAP, good, "::ffff:192.0.2.7")
		wants("imap 192.0.2.7 ok  2 0s 1m0s")
		try(mailbox.SMTP, password, "192.0.2.7")
		h.now = h.now.Add(time.Minute)
		try(mailbox.IMAP, password, "2001:db8::7")
		h.now = h.now.Add(time.Minute)
		try(mailbox.IMAP, "Wrong-1-horse", "2001:db8:0:1::7")
		try(mailbox.IMAP, "Wrong-2-horse", "2001:db8:0:1::8")
		wants("imap 2001:db8:0:1::/64 wrong_password  2 3m0s 3m0s", "imap 2001:db8::7 ok Phone 1 2m0s 2m0s",
			"smtp 192.0.2.7 wrong_protocol Phone 1 1m0s 1m0s", "imap 192.0.2.7 ok  2 0s 1m0s")

		// After an hour a new row begins; a written row can still be updated.
		h.now = begun.Add(59 * time.Minute)
		try(mailbox.IMAP, good, "192.0.2.7")
		h.now = begun.Add(time.Hour)
		try(mailbox.IMAP, good, "192.0.2.7")
		if got := lines(); got[0] != "imap 192.0.2.7 ok  1 1h0m0s 1h0m0s" || got[4] != "imap 192.0.2.7 ok  3 0s 59m0s" {
			t.Errorf("sign-ins\n%s", strings.Join(got, "\n"))
		}
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)}); err != nil {
			t.Fatal(err)
		}
		try(mailbox.SMTP, good, "192.0.2.7")
		if got := lines(); got[0] != "smtp 192.0.2.7 suspended  1 1h0m0s 1h0m0s" {
			t.Errorf("sign-ins\n%s", strings.Join(got, "\n"))
		}
		n, err := h.PruneSignIns(ctx, begun.Add(10*time.Minute), 10)
		if got := lines(); n != 3 || err != nil || len(got) != 3 {
			t.Errorf("pruned %d, %v; left\n%s", n, err, strings.Join(got, "\n"))
		}
	})
}

// Guesses don't displace the owner's sign-ins.
func TestSignInsAreBounded(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		_, revoked := h.app(ann, "Phone", "imap")
		list, _, err := h.AppPasswords(ctx, h.account, ann.ID, db.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here); err != nil {
			t.Fatal(err)
		}
		if err := h.RevokeAppPassword(ctx, h.account, ann.ID, list[0].ID); err != nil {
			t.Fatal(err)
		}
		for i := range mailbox.MaxSignIns + 60 {
			from := netip.AddrFrom4([4]byte{198, 51, byte(i / 200), byte(i % 200)})
			_, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", revoked, from)
			if !fault.Is(err, fault.Unauthenticated) {
				t.Fatal(err)
			}
			if i%100 == 0 {
				if err := h.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		count := map[string]int{}
		at := db.Page{Limit: db.MaxPageSize}
		for {
			page, more, err := h.SignIns(ctx, h.account, ann.ID, at)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page {
				count[s.Result]++
				at.After = s.ID
			}
			if !more {
				break
			}
		}
		if count[mailbox.ResultWrongPassword] != mailbox.MaxSignIns || count[mailbox.ResultOK] != 1 {
			t.Errorf("kept %v", count)
		}
	})
}
