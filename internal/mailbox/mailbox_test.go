// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/throttle"
)

// house is mailboxes with an account that owns demo.test. The domain rows are
// written here, since the tests of one floor don't start the others.
type house struct {
	*mailbox.Mailboxes
	t       *testing.T
	db      *db.DB
	now     time.Time
	account db.ID
	domain  db.ID
	owners  map[db.ID]owner // by domain
	holder  db.ID           // the domain that holds demo.test
	waited  []time.Duration
	emptied []db.ID
}

type owner struct {
	account db.ID
	name    string
}

var insertDomain = db.SQL(`INSERT INTO domain (id, account, name, status, held, token, receives, sends, aligned, records, checked_at,
	next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
	VALUES ($1, $2, $3, 'verified', $4, '', $4, $4, $4, '', 0, 0, 0, 0, 0, 0, 0)`)

func each(t *testing.T, f func(h *house)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := &house{t: t, db: d, now: time.Now().Truncate(time.Second), owners: map[db.ID]owner{}}
		now := func() time.Time { return h.now }
		hub := &signal.Hub{}
		accounts := account.New(d, hub, now)
		guesses := throttle.NewGuesses()
		guesses.Now = now
		h.Mailboxes = mailbox.Open(mailbox.Options{
			DB: d, Hub: hub, Accounts: accounts, Hasher: credential.NewHasher(), Guesses: guesses, Now: now,
			Events:     &event.Log{DB: d, Hub: hub, Now: now},
			MaxQuotaMB: 10_000, Host: "mail.host.test",
			Owned: func(_ context.Context, account, domain db.ID) (string, error) {
				if o := h.owners[domain]; o.account == account {
					return o.name, nil
				}
				return "", fault.New(fault.NotFound, "not_found", "none")
			},
			Hosted: func(_ context.Context, name string) (db.ID, db.ID, bool, error) {
				o := h.owners[h.holder]
				return h.holder, o.account, o.name == name, nil
			},
			Provision: func(context.Context, *db.Tx, db.ID) error { return nil },
			Empty:     func(_ context.Context, id db.ID) error { h.emptied = append(h.emptied, id); return nil },
		})
		h.SetPause(func(_ context.Context, d time.Duration) error { h.waited = append(h.waited, d); return nil })
		h.account = h.newAccount(accounts, "owner@example.com")
		h.domain = h.newDomain(h.account, true)
		h.holder = h.domain
		f(h)
	})
}

func (h *house) newAccount(a *account.Accounts, email string) db.ID {
	h.t.Helper()
	acc, err := a.Create(h.t.Context(), email, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return acc.ID
}

func (h *house) newDomain(account db.ID, held bool) db.ID {
	h.t.Helper()
	id := h.db.NewID()
	h.exec(insertDomain.With(id, account, "demo.test", held))
	h.owners[id] = owner{account, "demo.test"}
	return id
}

func (h *house) exec(s db.Statement) {
	h.t.Helper()
	err := h.db.Tx(h.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(h.t.Context(), s)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) create(local, password string) mailbox.Mailbox {
	h.t.Helper()
	box, _, err := h.Create(h.t.Context(), h.account, mailbox.New{Domain: h.domain, LocalPart: local, Password: &password})
	if err != nil {
		h.t.Fatal(err)
	}
	return box
}

func (h *house) anyMailbox() (used bool, err error) {
	err = h.db.Tx(h.t.Context(), func(tx *db.Tx) (err error) {
		used, err = h.Any(h.t.Context(), tx, h.domain)
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

func TestCreate(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		box, password, err := h.Create(ctx, h.account, mailbox.New{Domain: h.domain, LocalPart: "Ann.Lee", DisplayName: "Ann", QuotaMB: new(3000)})
		if err != nil {
			t.Fatal(err)
		}
		if box.Address != "Ann.Lee@demo.test" || box.Quota != 3000<<20 || credential.Check("p", password) != nil {
			t.Errorf("made %+v with password of %d letters", box, len(password))
		}
		if got, err := h.Get(ctx, h.account, box.ID); err != nil || got != box {
			t.Errorf("got %+v, %v\nwant %+v", got, err, box)
		}
		_, _, err = h.Create(ctx, h.account, mailbox.New{Domain: h.domain, LocalPart: "ann.lee"})
		wantKind(t, err, fault.Conflict, "address_taken")
		_, err = h.Get(ctx, h.account+1, box.ID)
		wantKind(t, err, fault.NotFound, "not_found")
		_, _, err = h.Create(ctx, h.account+1, mailbox.New{Domain: h.domain, LocalPart: "eve"})
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
	each(t, func(h *house) {
		_, _, err := h.Create(h.t.Context(), h.account, mailbox.New{Domain: h.domain, LocalPart: "b-x", Password: new("short"), DisplayName: "a\nb", QuotaMB: new(0)})
		var f *fault.Error
		if !errors.As(err, &f) {
			h.t.Fatal(err)
		}
		var fields []string
		for _, one := range f.Fields {
			fields = append(fields, one.Field+" "+one.Code)
		}
		want := []string{"local_part reserved_local_part", "password too_short", "password missing_uppercase", "password missing_digit",
			"password missing_special", "display_name invalid_display_name", "quota_mb out_of_range"}
		if !slices.Equal(fields, want) {
			h.t.Errorf("fields %q", fields)
		}
	})
}

func TestChange(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		box := h.create("ann", good)
		got, err := h.Update(ctx, h.account, box.ID, mailbox.Change{DisplayName: new("Ann"), QuotaMB: new(9999)})
		if err != nil || got.DisplayName != "Ann" || got.Quota != 9999<<20 || got.Status != mailbox.Active {
			t.Errorf("changed to %+v, %v", got, err)
		}
		got, err = h.Update(ctx, h.account, box.ID, mailbox.Change{Status: new(mailbox.Suspended)})
		if err != nil || got.DisplayName != "Ann" || got.Status != mailbox.Suspended {
			t.Errorf("suspended: %+v, %v", got, err)
		}
		_, err = h.Authenticate(ctx, mailbox.IMAP, box.Address, good, here)
		wantKind(t, err, fault.Denied, "mailbox_suspended")
		_, err = h.Resolve(ctx, addr(t, box.Address))
		wantKind(t, err, fault.Denied, mailbox.CodeSuspended)
		_, err = h.Update(ctx, h.account+1, box.ID, mailbox.Change{DisplayName: new("Eve")})
		wantKind(t, err, fault.NotFound, "not_found")
		_, err = h.Update(ctx, h.account, box.ID, mailbox.Change{Status: new("gone"), QuotaMB: new(10_001)})
		wantKind(t, err, fault.Invalid, "validation_failed")
	})
}

func TestPassword(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		box := h.create("ann", good)
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ANN@Demo.Test", good, here); err != nil {
			t.Fatal(err)
		}
		if err := h.Current(ctx, box); err != nil {
			t.Error(err)
		}
		made, err := h.SetPassword(ctx, h.account, box.ID, nil)
		wantKind(t, h.Current(ctx, box), fault.Unknown, "login_revoked")
		if err != nil || made == "" {
			t.Fatal(made, err)
		}
		_, err = h.Authenticate(ctx, mailbox.IMAP, box.Address, good, here)
		wantKind(t, err, fault.Unknown, "invalid_credentials")
		if _, err := h.Authenticate(ctx, mailbox.IMAP, box.Address, made, here); err != nil {
			t.Error(err)
		}
		if again, err := h.SetPassword(ctx, h.account, box.ID, new(good)); err != nil || again != "" {
			t.Errorf("returned a given password, or %v", err)
		}
		_, err = h.SetPassword(ctx, h.account+1, box.ID, new(good))
		wantKind(t, err, fault.NotFound, "not_found")
		for _, user := range []string{"nobody@demo.test", "no address", ""} {
			_, err = h.Authenticate(ctx, mailbox.IMAP, user, good, here)
			wantKind(t, err, fault.Unknown, "invalid_credentials")
		}
	})
}

func TestGuessing(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		h.create("ann", good)
		from := netip.MustParseAddr("198.51.100.9")
		tries := 0
		for ; tries < 50; tries++ {
			_, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", "Wrong-"+string(rune('a'+tries))+"-1", from)
			if fault.Is(err, fault.Limited) {
				break
			}
			wantKind(t, err, fault.Unknown, "invalid_credentials")
		}
		if tries == 0 || tries == 50 {
			t.Errorf("limited after %d tries", tries)
		}
		if slices.Max(h.waited) == 0 {
			t.Error("answers were never delayed")
		}
		if _, err := h.Authenticate(ctx, mailbox.IMAP, "ann@demo.test", good, here); err != nil {
			t.Errorf("the owner from elsewhere: %v", err)
		}
	})
}

func TestDelete(t *testing.T) {
	each(t, func(h *house) {
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
		wantKind(t, err, fault.Unknown, "invalid_credentials")
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

		h.now = h.now.Add(mailbox.Restorable + time.Hour)
		_, err = h.Restore(ctx, h.account, again.ID)
		wantKind(t, err, fault.NotFound, "not_found")
		if n, err := h.Purge(ctx); n != 0 || err != nil {
			t.Errorf("purged %d too early, %v", n, err)
		}
		h.now = h.now.Add(24 * time.Hour)
		if n, err := h.Purge(ctx); n != 1 || err != nil || !slices.Equal(h.emptied, []db.ID{again.ID}) {
			t.Errorf("purged %d, %v; emptied %v", n, err, h.emptied)
		}
		if _, err := h.Get(ctx, h.account, box.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestSearch(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		for _, n := range []mailbox.New{{LocalPart: "Ann.Lee", DisplayName: "Ann Lee"}, {LocalPart: "bob", DisplayName: "50% Bob"}, {LocalPart: "c_d"}} {
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

// The former holder of a domain still reads its mail, and receives none.
func TestChangeOfHands(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		old := h.create("ann", good)
		release := db.SQL(`UPDATE domain SET held = FALSE WHERE id = $1`)
		h.exec(release.With(h.domain))
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

func TestRoom(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.New{Domain: h.domain, LocalPart: "ann", QuotaMB: new(1)})
		if err != nil {
			t.Fatal(err)
		}
		const mb = 1 << 20
		wantKind(t, h.Room(ctx, box.ID, mb+1), fault.TooLarge, "message_over_quota")
		claim := func(bytes int64) error {
			return h.db.Write(ctx, box.ID, &db.Job{Guard: func(b *db.Batch) {
				b.Queue(mailbox.Claim(box.ID, bytes, 1)).Else(mailbox.Full())
			}})
		}
		deposit := func(bytes, messages int64) {
			t.Helper()
			if err := h.db.Write(ctx, box.ID, &db.Job{Apply: func(b *db.Batch) { b.Queue(mailbox.Deposit(box.ID, bytes, messages)) }}); err != nil {
				t.Fatal(err)
			}
		}
		if err := claim(mb - 10); err != nil {
			t.Fatal(err)
		}
		wantKind(t, claim(11), fault.OverQuota, mailbox.CodeFull)
		if err := h.Room(ctx, box.ID, 10); err != nil {
			t.Error(err)
		}
		deposit(20, 1) // what RCPT accepted may overrun
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFull)
		h.now = h.now.Add(mailbox.OverLong - time.Second)
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFull)
		h.now = h.now.Add(time.Second)
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFullLong)
		deposit(-5, -1)
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFull) // the seven days begin anew
		deposit(-100, 0)
		if err := h.Room(ctx, box.ID, 1); err != nil {
			t.Error(err)
		}
		if got, err := h.ByID(ctx, box.ID); err != nil || got.Used != mb-95 || got.Messages != 1 {
			t.Errorf("uses %d in %d, %v", got.Used, got.Messages, err)
		}
	})
}
