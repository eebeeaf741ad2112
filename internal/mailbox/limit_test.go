// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// guesses counts how many of 60 new passwords for an address are answered as wrong; between runs
// after each.
func (h *fixture) guesses(address string, from netip.Addr, between func()) (answered int) {
	h.t.Helper()
	for i := range 60 {
		between()
		_, err := h.Authenticate(h.t.Context(), mailbox.IMAP, address, fmt.Sprint("Wrong-", from, "-", i), from)
		switch {
		case fault.Is(err, fault.Unauthenticated):
			answered++
		case !fault.Is(err, fault.RateLimited):
			h.t.Fatal(err)
		}
	}
	return answered
}

func (h *fixture) mustSignIn(address, password string, from netip.Addr) mailbox.Mailbox {
	h.t.Helper()
	box, err := h.Authenticate(h.t.Context(), mailbox.IMAP, address, password, from)
	if err != nil {
		h.t.Fatal(err)
	}
	return box
}

// Knowing a printer's app password doesn't help to guess the mailbox's own password.
func TestAppPasswordHelpsNoGuessing(t *testing.T) {
	each(t, func(h *fixture) {
		ann := h.create("ann", good)
		_, app := h.app(ann, "Printer", "imap")
		printer := netip.MustParseAddr("198.51.100.9")
		n := h.guesses("ann@demo.test", printer, func() { h.mustSignIn("ann@demo.test", app, printer) })
		if n != 10 {
			h.t.Errorf("%d of 60 guesses were answered", n)
		}
		// It doesn't lock out the owner either, who signed in from elsewhere before.
		h.mustSignIn("ann@demo.test", app, printer)
		h.mustSignIn("ann@demo.test", good, here)
	})
}

// The former owner of a domain still has a mailbox with the same address. Neither mailbox helps to
// guess the password of the other.
func TestNamesakeHelpsNoGuessing(t *testing.T) {
	needtest.Full(t, "guessing at namesakes")
	each(t, func(h *fixture) {
		const former = "Former-horse-7"
		old := h.create("ann", former)
		h.account = h.newAccount(h.Accounts, "new@example.com")
		h.domain = h.newDomain(h.account, false)
		h.holder = h.domain
		now := h.create("ann", good)
		for from, own := range map[string]string{"198.51.100.8": former, "198.51.100.9": good} {
			at := netip.MustParseAddr(from)
			want := map[string]mailbox.Mailbox{former: old, good: now}[own]
			n := h.guesses("ann@demo.test", at, func() {
				if got := h.mustSignIn("ann@demo.test", own, at); got.ID != want.ID {
					h.t.Fatalf("signed in to %d", got.ID)
				}
			})
			if n > 10 {
				h.t.Errorf("%d of 60 guesses were answered", n)
			}
		}
	})
}

// The owner of one mailbox can't prepare guesses while the other mailbox is at its limit, so that
// they are answered later without being counted.
func TestGuessesAtNamesakesAreCounted(t *testing.T) {
	needtest.Full(t, "guessing at namesakes")
	each(t, func(h *fixture) {
		const former = "Former-horse-7"
		h.create("ann", former)
		h.account = h.newAccount(h.Accounts, "new@example.com")
		h.domain = h.newDomain(h.account, false)
		h.holder = h.domain
		h.create("ann", good)
		at, other := netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("203.0.113.5")
		guess := func(i int, from netip.Addr) error {
			_, err := h.Authenticate(h.t.Context(), mailbox.IMAP, "ann@demo.test", fmt.Sprint("Guess-", i), from)
			return err
		}
		own := func() { h.mustSignIn("ann@demo.test", former, at) }
		own()
		h.guesses("ann@demo.test", at, own)
		for i := range 20 {
			if err := guess(i, at); !fault.Is(err, fault.RateLimited) {
				h.t.Fatal(i, err)
			}
			own()
		}
		answered := 0
		for i := range 20 {
			if fault.Is(guess(i, other), fault.Unauthenticated) {
				answered++
			}
		}
		if answered != 10 {
			h.t.Errorf("%d of 20 prepared guesses were answered", answered)
		}
	})
}

// An address that doesn't exist is limited like one that does, for own passwords and app passwords.
func TestLimitsTellNoAddresses(t *testing.T) {
	each(t, func(h *fixture) {
		ann := h.create("ann", good)
		tried := func(address string, n byte) (own, app int) {
			at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, n, 113, byte(i)}) }
			for i := range 40 {
				if _, err := h.Authenticate(h.t.Context(), mailbox.IMAP, address, fmt.Sprint("Wrong-", i), at(i)); fault.Is(err, fault.Unauthenticated) {
					own++
				}
			}
			for i := range 40 {
				p, password := h.app(ann, "short-lived", "imap")
				if err := h.RevokeAppPassword(h.t.Context(), h.account, ann.ID, p.ID); err != nil {
					h.t.Fatal(err)
				}
				if _, err := h.Authenticate(h.t.Context(), mailbox.IMAP, address, password, at(100+i)); fault.Is(err, fault.Unauthenticated) {
					app++
				}
			}
			return own, app
		}
		own, app := tried("ann@demo.test", 1)
		nobodyOwn, nobodyApp := tried("nobody@demo.test", 2)
		if own != 30 || app != 40 || nobodyOwn != own || nobodyApp != app {
			h.t.Errorf("%d and %d guesses were answered, of nobody %d and %d", own, app, nobodyOwn, nobodyApp)
		}
	})
}

// After a password change no network is known: guesses from networks that used the old password are
// limited as all others.
func TestNewPasswordIsKnownNowhere(t *testing.T) {
	each(t, func(h *fixture) {
		ctx := h.t.Context()
		change := map[string]func(mailbox.Mailbox) error{
			"set": func(box mailbox.Mailbox) error {
				_, err := h.SetPassword(ctx, h.account, box.ID, new("Other-horse-8"))
				return err
			},
			"changed": func(box mailbox.Mailbox) error { _, err := h.ChangePassword(ctx, box, "Other-horse-8"); return err },
		}
		for how, f := range change {
			box := h.create(how, good)
			box = h.mustSignIn(box.Address, good, here)
			of := []ratelimit.Credential{ratelimit.Credential(fmt.Sprint("mailbox:", int64(box.ID)))}
			for i := range 30 {
				at := netip.AddrFrom4([4]byte{203, byte(len(how)), 113, byte(i)})
				if _, err := h.Logins.Try(ctx, at, fmt.Sprint(i), of, func([]ratelimit.Credential) (ratelimit.Credential, error) { return "", nil }); err != nil {
					h.t.Fatal(err)
				}
			}
			box = h.mustSignIn(box.Address, good, here)
			if err := f(box); err != nil {
				h.t.Fatal(err)
			}
			if _, err := h.Authenticate(ctx, mailbox.IMAP, box.Address, "Other-horse-8", here); !fault.Is(err, fault.RateLimited) {
				h.t.Errorf("%s: %v", how, err)
			}
		}
	})
}
