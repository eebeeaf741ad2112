// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// fixture is the fixture: mailboxes with an account that owns demo.test. It writes the domain rows
// itself, since the tests of one layer don't start the others.
type fixture struct {
	*mailbox.Mailboxes
	t       *testing.T
	db      *db.DB
	now     time.Time
	account db.ID
	domain  db.ID
	owners  map[db.ID]owner  // by domain
	holder  db.ID            // the domain row of demo.test
	named   map[string]db.ID // the domain rows of other names

	accounts *account.Accounts
	waited   []time.Duration
	emptied  []db.ID
}

type owner struct {
	account db.ID
	name    string
}

func each(t *testing.T, f func(h *fixture)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := &fixture{t: t, db: d, now: time.Now().Truncate(time.Second), owners: map[db.ID]owner{}, named: map[string]db.ID{}}
		now := func() time.Time { return h.now }
		hub := &notify.Hub{}
		accounts := account.New(d, hub, now)
		logins := ratelimit.NewLoginLimiter(d, []byte("a key"), nil)
		logins.Now = now
		h.Mailboxes = mailbox.Open(mailbox.Options{
			DB: d, Hub: hub, Accounts: accounts, Hasher: credential.NewHasherWithCost(credentialtest.Cost), Logins: logins, Now: now,
			Events:     &event.Log{DB: d, Hub: hub, Now: now},
			MaxQuotaMB: 10_000, Host: "mail.host.test",
			VerifiedName: func(_ context.Context, account, domain db.ID) (string, error) {
				if o := h.owners[domain]; o.account == account {
					return o.name, nil
				}
				return "", fault.New(fault.NotFound, "not_found", "none")
			},
			FindHosted: func(_ context.Context, name string) (domain.HostedDomain, bool, error) {
				id := h.holder
				if other := h.named[name]; other != 0 {
					id = other
				}
				o := h.owners[id]
				return domain.HostedDomain{Domain: id, Account: o.account}, o.name == name, nil
			},
			CreateFolders: func(context.Context, *db.Tx, db.ID) error { return nil },
			DeleteMail:    func(_ context.Context, id db.ID) error { h.emptied = append(h.emptied, id); return nil },
		})
		h.accounts = accounts
		h.SetPause(func(_ context.Context, d time.Duration) error { h.waited = append(h.waited, d); return nil })
		h.account = h.newAccount(accounts, "owner@example.com")
		h.domain = h.newDomain(h.account, true)
		h.holder = h.domain
		f(h)
	})
}

func (h *fixture) newAccount(a *account.Accounts, email string) db.ID {
	h.t.Helper()
	acc, err := a.Create(h.t.Context(), email, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return acc.ID
}

func (h *fixture) newDomain(account db.ID, held bool) db.ID {
	h.t.Helper()
	id := testkit.AddDomain(h.t, h.db, account, "demo.test", held)
	h.owners[id] = owner{account, "demo.test"}
	return id
}

// newDomainNamed creates a domain with another name for an account.
func (h *fixture) newDomainNamed(account db.ID, name string) db.ID {
	h.t.Helper()
	id := testkit.AddDomain(h.t, h.db, account, name, true)
	h.owners[id], h.named[name] = owner{account, name}, id
	return id
}

func (h *fixture) create(local, password string) mailbox.Mailbox {
	h.t.Helper()
	box, _, err := h.Create(h.t.Context(), h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: local, Password: &password})
	if err != nil {
		h.t.Fatal(err)
	}
	return box
}

func (h *fixture) anyMailbox() (used bool, err error) {
	err = h.db.Tx(h.t.Context(), func(tx *db.Tx) (err error) {
		used, err = mailbox.HasAddresses(h.t.Context(), tx, h.domain)
		return err
	})
	return used, err
}

const good = "Correct-horse-7"

var here = netip.MustParseAddr("192.0.2.7")

func wantKind(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != kind || f.Code != code {
		t.Errorf("got %v, want kind %d with code %s", err, kind, code)
	}
}

func addr(t *testing.T, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
