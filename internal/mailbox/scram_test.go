// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// offered makes the fixture offer SCRAM-SHA-256.
func (h *fixture) offered() {
	h.SCRAM = &credential.SCRAM{Hasher: h.Hasher, Key: []byte("a secret of this house"), Offered: true}
}

// dialogue is a client's SCRAM-SHA-256 exchange, up to its final message.
type dialogue struct {
	client *scram.ClientConversation
	server *credential.SCRAMExchange
	final  string
}

func (h *fixture) begin(user, password string) dialogue {
	h.t.Helper()
	c, err := scram.SHA256.NewClient(user, password, "")
	if err != nil {
		h.t.Fatal(err)
	}
	d := dialogue{client: c.NewConversation()}
	first, err := d.client.Step("")
	if err != nil {
		h.t.Fatal(err)
	}
	if d.server, err = h.SCRAM.Begin(first); err != nil {
		h.t.Fatal(err)
	}
	if d.final, err = d.client.Step(d.server.Challenge); err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *fixture) end(d dialogue, p mailbox.Protocol, from netip.Addr) (mailbox.Mailbox, error) {
	h.t.Helper()
	box, answer, err := h.AuthenticateSCRAM(h.t.Context(), p, d.server, d.final, from)
	if err == nil {
		if _, err := d.client.Step(answer); err != nil || !d.client.Valid() {
			h.t.Errorf("the client does not believe us: %v", err)
		}
	}
	return box, err
}

func (h *fixture) prove(p mailbox.Protocol, user, password string) (mailbox.Mailbox, error) {
	h.t.Helper()
	return h.end(h.begin(user, password), p, here)
}

var verifiers = db.SQL(`SELECT scram FROM mailbox WHERE id = $1 UNION ALL SELECT scram FROM app_password WHERE mailbox = $1`)

// verifiers counts the stored verifiers of a mailbox.
func (h *fixture) verifiers(box mailbox.Mailbox) (n int) {
	h.t.Helper()
	all, err := db.All(h.t.Context(), h.db, verifiers.With(box.ID), func(r db.Row) (s string, err error) { return s, r.Scan(&s) })
	if err != nil {
		h.t.Fatal(err)
	}
	return len(strings.Fields(strings.Join(all, " ")))
}

func TestScram(t *testing.T) {
	each(t, func(h *fixture) {
		h.offered()
		ctx, t := h.t.Context(), h.t
		ann := h.create("Ann", good)
		phone, onPhone := h.app(ann, "Phone", "imap")
		if n := h.verifiers(ann); n != 3 {
			t.Errorf("keeps %d verifiers", n)
		}
		box, err := h.prove(mailbox.SMTP, "ANN@demo.test", good)
		if err != nil || box.ID != ann.ID {
			t.Fatalf("signed in to %v, %v", box.ID, err)
		}
		for _, typed := range []string{onPhone, strings.ReplaceAll(onPhone, "-", "")} {
			session, err := h.prove(mailbox.IMAP, "ann@demo.test", typed)
			if err != nil || session.ID != ann.ID {
				t.Fatalf("with an app password: %v", err)
			}
			if err := h.CheckLogin(ctx, session); err != nil {
				t.Error(err)
			}
		}
		_, err = h.prove(mailbox.SMTP, "ann@demo.test", onPhone)
		wantKind(t, err, fault.Denied, "wrong_protocol")
		for _, c := range [][2]string{{"ann@demo.test", "Wrong-horse-7"}, {"ann@demo.test", strings.ToUpper(onPhone)}, {"bob@demo.test", good}, {"no address", good}, {"", good}} {
			_, err = h.prove(mailbox.IMAP, c[0], c[1])
			wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		}
		list, _, err := h.SignIns(ctx, h.account, ann.ID, db.Page{})
		var seen []string
		for _, s := range list {
			seen = append(seen, fmt.Sprint(s.Protocol, " ", s.Result, " ", s.AppPassword, " ", s.Times))
		}
		if want := []string{"imap wrong_password  2", "smtp wrong_protocol Phone 1", "imap ok Phone 2", "smtp ok  1"}; err != nil || !slices.Equal(seen, want) {
			t.Errorf("sign-ins %q, %v", seen, err)
		}
		apps, _, err := h.AppPasswords(ctx, h.account, ann.ID, db.Page{})
		if err != nil || apps[0].LastUsedAt.IsZero() {
			t.Errorf("never used: %+v, %v", apps, err)
		}

		// Changes that end a password also end exchanges in progress.
		session, err := h.prove(mailbox.IMAP, "ann@demo.test", onPhone)
		if err != nil {
			t.Fatal(err)
		}
		under := h.begin("ann@demo.test", onPhone)
		if err := h.RevokeAppPassword(ctx, h.account, ann.ID, phone.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.end(under, mailbox.IMAP, here)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		wantKind(t, h.CheckLogin(ctx, session), fault.Unauthenticated, "login_revoked")
		under = h.begin("ann@demo.test", good)
		made, err := h.SetPassword(ctx, h.account, ann.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.end(under, mailbox.IMAP, here)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		wantKind(t, h.CheckLogin(ctx, box), fault.Unauthenticated, "login_revoked")
		if _, err = h.prove(mailbox.IMAP, "ann@demo.test", made); err != nil {
			t.Error(err)
		}
		under = h.begin("ann@demo.test", made)
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{Status: new(mailbox.StatusSuspended)}); err != nil {
			t.Fatal(err)
		}
		_, err = h.end(under, mailbox.IMAP, here)
		wantKind(t, err, fault.Denied, "mailbox_suspended")
		if err := h.Delete(ctx, h.account, ann.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.prove(mailbox.IMAP, "ann@demo.test", made)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
	})
}

// Guesses count the same with a mailbox and without; a message that doesn't belong to the exchange
// is no guess.
func TestScramGuessing(t *testing.T) {
	each(t, func(h *fixture) {
		h.offered()
		t := h.t
		h.create("ann", good)
		limited := func(user, network string) (tries int, waited int) {
			t.Helper()
			h.waited = nil
			for tries = range 50 {
				d := h.begin(user, fmt.Sprint("Wrong-", tries))
				foreign := d
				foreign.final = strings.Replace(d.final, "r=", "r=x", 1)
				if _, err := h.end(foreign, mailbox.IMAP, netip.MustParseAddr(network)); !errors.Is(err, credential.ErrSCRAMMessage) {
					t.Fatalf("a foreign message: %v", err)
				}
				_, err := h.end(d, mailbox.IMAP, netip.MustParseAddr(network))
				if fault.Is(err, fault.RateLimited) {
					break
				}
				wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
			}
			for _, d := range h.waited {
				if d > 0 {
					waited++
				}
			}
			return tries, waited
		}
		there, waited := limited("ann@demo.test", "198.51.100.9")
		if there == 0 || there > 40 || waited == 0 {
			t.Errorf("limited after %d tries, delayed %d times", there, waited)
		}
		if nobody, waits := limited("nobody@demo.test", "203.0.113.9"); nobody != there || waits != waited {
			t.Errorf("who is not here: %d tries and %d delays, else %d and %d", nobody, waits, there, waited)
		}
		_, err := h.end(h.begin("ann@demo.test", good), mailbox.IMAP, netip.MustParseAddr("198.51.100.9"))
		wantKind(t, err, fault.RateLimited, "too_many_failed_logins")
		if _, err := h.prove(mailbox.IMAP, "ann@demo.test", good); err != nil {
			t.Errorf("the owner from elsewhere: %v", err)
		}
	})
}

// Verifiers of passwords from before SCRAM was enabled are stored at the next login.
func TestScramLearns(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		_, app := h.app(ann, "Phone", "imap")
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here); err != nil || h.verifiers(ann) != 0 {
			t.Errorf("off, and keeps %d verifiers, %v", h.verifiers(ann), err)
		}
		h.offered()
		_, err := h.prove(mailbox.IMAP, "ann@demo.test", good)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		list, _, err := h.SignIns(ctx, h.account, ann.ID, db.Page{})
		if err != nil || list[0].Result != mailbox.ResultNoVerifier {
			t.Errorf("noted as %s, %v", list[0].Result, err)
		}
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", "Wrong-horse-7", here); err == nil || h.verifiers(ann) != 0 {
			t.Error("learned a wrong password")
		}
		for _, password := range []string{good, strings.ReplaceAll(app, "-", " ")} {
			if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", password, here); err != nil {
				t.Fatal(err)
			}
		}
		if n := h.verifiers(ann); n != 3 {
			t.Errorf("keeps %d verifiers", n)
		}
		for _, password := range []string{good, app} {
			if _, err := h.prove(mailbox.IMAP, "ann@demo.test", password); err != nil {
				t.Errorf("after it was learned: %v", err)
			}
		}
		if err := h.DropVerifiers(ctx); err != nil || h.verifiers(ann) != 3 {
			t.Errorf("kept %d verifiers, %v", h.verifiers(ann), err)
		}

		// With another key all verifiers are created again.
		h.SCRAM.Key = []byte("another")
		_, err = h.prove(mailbox.IMAP, "ann@demo.test", good)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here); err != nil {
			t.Fatal(err)
		}
		if _, err := h.prove(mailbox.IMAP, "ann@demo.test", good); err != nil {
			t.Error(err)
		}

		// A release without SCRAM changes a password.
		dbtest.Exec(h.t, h.db, oldRelease.With(ann.ID, "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA"))
		_, err = h.prove(mailbox.IMAP, "ann@demo.test", good)
		wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
		if _, err := h.SetPassword(ctx, h.account, ann.ID, new(good)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.prove(mailbox.IMAP, "ann@demo.test", good); err != nil {
			t.Error(err)
		}

		h.SCRAM = nil
		if err := h.DropVerifiers(ctx); err != nil || h.verifiers(ann) != 0 {
			t.Errorf("off again, and keeps %d verifiers, %v", h.verifiers(ann), err)
		}
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here); err != nil || h.verifiers(ann) != 0 {
			t.Errorf("off, and keeps %d verifiers, %v", h.verifiers(ann), err)
		}
	})
}

var oldRelease = db.SQL(`UPDATE mailbox SET password = $2, generation = generation + 1 WHERE id = $1`)

var unlearn = db.SQL(`UPDATE mailbox SET scram = '' WHERE id = $1`)

// If a password changes while its verifiers are stored, they are not stored.
func TestScramLearnsNoOldPassword(t *testing.T) {
	each(t, func(h *fixture) {
		h.offered()
		h.SetPause(func(context.Context, time.Duration) error { return nil }) // the fixture's function isn't safe for concurrent use
		ctx, t := h.t.Context(), h.t
		ann := h.create("ann", good)
		from, to := good, "Another-horse-8"
		for range 8 {
			if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", from, here); err != nil {
				t.Fatal(err)
			}
			dbtest.Exec(h.t, h.db, unlearn.With(ann.ID))
			var both sync.WaitGroup
			for range 4 {
				both.Go(func() { _, _ = h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", from, here) })
			}
			both.Go(func() {
				if _, err := h.SetPassword(ctx, h.account, ann.ID, &to); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			if _, err := h.prove(mailbox.IMAP, "ann@demo.test", to); err != nil {
				t.Fatalf("the new password: %v", err)
			}
			_, err := h.prove(mailbox.IMAP, "ann@demo.test", from)
			wantKind(t, err, fault.Unauthenticated, "invalid_credentials")
			from, to = to, from
		}
	})
}

// When a domain changes hands an address may have two mailboxes, each with its own password.
func TestScramNamesakes(t *testing.T) {
	each(t, func(h *fixture) {
		h.offered()
		t := h.t
		old := h.create("ann", good)
		_, app := h.app(old, "Phone", "imap")
		h.account = h.newAccount(h.Accounts, "other@example.com")
		dbtest.Exec(h.t, h.db, db.SQL(`UPDATE domain SET owned = FALSE WHERE id = $1`).With(h.domain))
		h.domain = h.newDomain(h.account, true)
		h.holder = h.domain
		fresh := h.create("ann", "Another-horse-8")
		for password, want := range map[string]db.ID{good: old.ID, app: old.ID, "Another-horse-8": fresh.ID} {
			if box, err := h.prove(mailbox.IMAP, "ann@demo.test", password); err != nil || box.ID != want {
				t.Errorf("signed in to %v, %v, want %v", box.ID, err, want)
			}
		}
	})
}
