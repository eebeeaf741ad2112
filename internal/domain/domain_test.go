// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/mailauth/mailauthtest"
	"github.com/mailstead/mailstead/internal/notify"
)

// world is a service with its database and a DNS of its own.
type world struct {
	*domain.Domains
	t     testing.TB
	db    *db.DB
	zone  *dnstest.Zone
	clock *testkit.Clock
	ann   db.ID
	bob   db.ID
	there map[string]bool // lines in the zone
}

const host = "mail.service.test"

// spfOfHost is the record that the operator published; every domain includes it.
const spfOfHost = `spf.mail.service.test. TXT "v=spf1 ip4:127.0.0.1 -all"`

func open(t testing.TB, d *db.DB) *world {
	t.Helper()
	addr, zone := dnstest.Start(t, spfOfHost)
	w := &world{t: t, db: d, zone: zone, clock: testkit.NewClock(time.Now().Truncate(time.Second)), there: map[string]bool{}}
	w.ann, w.bob = w.account("ann"), w.account("bob")
	w.Domains = w.another(dnstest.Resolver(t, addr))
	return w
}

// another returns a second node on the same database.
func (w *world) another(resolver *dns.Resolver) *domain.Domains {
	hub := &notify.Hub{}
	return domain.New(domain.Options{
		DB: w.db, Hub: hub, Key: testkit.Key(w.t), Resolver: resolver, Host: host,
		Events:        &event.Log{DB: w.db, Hub: hub, Now: w.clock.Now},
		Audit:         &audit.Log{DB: w.db, Now: w.clock.Now},
		Addrs:         []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		Ports:         domain.Ports{IMAPS: 10993, Submissions: 10465, Submission: 10587},
		ReservedNames: []string{"simulator.test"}, GenerateKey: mailauthtest.GenerateKey,
		Now: w.clock.Now, Log: slog.New(slog.DiscardHandler),
	})
}

var insertAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, '', 'active', 0)`)

func (w *world) account(name string) db.ID {
	w.t.Helper()
	id := w.db.NewID()
	dbtest.Exec(w.t, w.db, insertAccount.With(id, name+"@example.com"))
	return id
}

var countEvents = db.SQL(`SELECT COUNT(*) FROM event WHERE account = $1 AND kind = 'domain_verified'`)

// verifiedEvents counts the verified events of an account.
func (w *world) verifiedEvents(account db.ID) (n int) {
	w.t.Helper()
	if err := w.db.One(w.t.Context(), countEvents.With(account), &n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) create(account db.ID, name string) domain.Domain {
	w.t.Helper()
	dom, err := w.Create(w.t.Context(), account, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return dom
}

// publish pastes the domain's zone text into the DNS.
func (w *world) publish(dom domain.Domain) {
	w.t.Helper()
	text, err := w.Zone(w.t.Context(), dom.Account, dom.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ';' && !w.there[line] {
			w.there[line] = true
			w.zone.Add(line)
		}
	}
}

// withdraw removes all records of a domain from the DNS.
func (w *world) withdraw(dom domain.Domain) {
	for _, r := range dom.Records {
		w.zone.Set(r.Name)
	}
	clear(w.there)
}

func (w *world) check(dom domain.Domain) domain.Domain {
	w.t.Helper()
	after, err := w.CheckDNS(w.t.Context(), dom.Account, dom.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	w.decidesAsShown(after)
	return after
}

// decidesAsShown fails unless sending and receiving decide as the domain's reasons say.
func (w *world) decidesAsShown(dom domain.Domain) {
	w.t.Helper()
	_, err := w.SendingDomain(w.t.Context(), dom.Account, dom.Name)
	if err != nil && !fault.Is(err, fault.Denied) {
		w.t.Fatal(err)
	}
	if sends := err == nil; sends != dom.Sends || sends != (len(dom.SendBlockers) == 0) {
		w.t.Errorf("%s sends: %v; shown are %v, %v", dom.Name, err, dom.Sends, dom.SendBlockers)
	}
	h, ok, err := w.FindHosted(w.t.Context(), dom.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	if receives := ok && h.Account == dom.Account && h.Receives && !h.Suspended; receives != dom.Receives || receives != (len(dom.ReceiveBlockers) == 0) {
		w.t.Errorf("%s receives: %+v; shown are %v, %v", dom.Name, h, dom.Receives, dom.ReceiveBlockers)
	}
}

// blocked fails unless these are the reasons why a domain can't send and can't receive.
func (w *world) blocked(dom domain.Domain, send, receive string) {
	w.t.Helper()
	if got := fmt.Sprint(dom.SendBlockers, dom.ReceiveBlockers); got != "["+send+"] ["+receive+"]" {
		w.t.Errorf("blocked by %s, want [%s] [%s]", got, send, receive)
	}
}

func record(t testing.TB, dom domain.Domain, kind string) domain.Record {
	t.Helper()
	i := slices.IndexFunc(dom.Records, func(r domain.Record) bool { return r.Kind == kind })
	if i < 0 {
		t.Fatalf("no record of kind %s", kind)
	}
	return dom.Records[i]
}

func (w *world) expect(dom domain.Domain, status string, receives, sends bool) {
	w.t.Helper()
	if dom.Status != status || dom.Receives != receives || dom.Sends != sends {
		w.t.Errorf("%s: %s, receives %t, sends %t; want %s, %t, %t", dom.Name, dom.Status, dom.Receives, dom.Sends, status, receives, sends)
		for _, r := range dom.Records {
			w.t.Logf("%s %s: %s %q %s", r.Kind, r.Name, r.Status, r.Observed, r.Error)
		}
	}
}

func TestCreate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "  BÜCHER.Example. ")
		if dom.Name != "xn--bcher-kva.example" || dom.DisplayName != "bücher.example" {
			t.Errorf("name %s, shown %s", dom.Name, dom.DisplayName)
		}
		w.expect(dom, domain.StatusPending, false, false)
		got, err := w.Get(t.Context(), w.ann, dom.ID)
		if err != nil || len(got.Records) != len(dom.Records) || got.Records[3].Value != dom.Records[3].Value {
			t.Errorf("got %+v, %v", got, err)
		}
		if !got.CreatedAt.Equal(dom.CreatedAt) || !got.NextCheckAt.Equal(w.clock.Now().Add(time.Minute)) {
			t.Errorf("created %v, next check %v", got.CreatedAt, got.NextCheckAt)
		}
		if _, err := w.Get(t.Context(), w.bob, dom.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		if _, err := w.Create(t.Context(), w.ann, "bücher.example"); !fault.Is(err, fault.Conflict) {
			t.Errorf("twice: %v", err)
		}
		other := w.create(w.bob, "bücher.example")
		if a, b := record(t, dom, domain.KindDKIM), record(t, other, domain.KindDKIM); a.Name == b.Name {
			t.Errorf("two claims want the same selector %s", a.Name)
		}
		for _, name := range []string{"", "shop", "co.uk", "test", host, "x." + host, "a.simulator.test", "192.0.2.1", "a_b.example", "-.example"} {
			if _, err := w.Create(t.Context(), w.ann, name); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if _, err := w.Create(t.Context(), w.ann, "service.test"); err != nil {
			t.Errorf("the name above the service's: %v", err)
		}
	})
}

func TestRequiredRecords(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "shop.test")
	var got []string
	for _, r := range dom.Records {
		value, _, _ := strings.Cut(r.Value, "p=")
		value, _, _ = strings.Cut(value, "verification=")
		value, _, _ = strings.Cut(value, "id=")
		name := r.Name
		if strings.HasPrefix(name, "ms1") {
			name = name[:4] + name[strings.Index(name, "._"):]
		}
		line := r.Kind + " " + r.Type + " " + name + " " + value
		if r.Required {
			line = "! " + line
		}
		got = append(got, line)
	}
	want := []string{
		"! OWNERSHIP TXT _mailstead.shop.test mailstead-",
		"! MX MX shop.test mail.service.test",
		"! SPF TXT shop.test v=spf1 include:spf.mail.service.test ~all",
		"! DKIM TXT ms1r._domainkey.shop.test v=DKIM1; k=rsa; ",
		"! DKIM TXT ms1e._domainkey.shop.test v=DKIM1; k=ed25519; ",
		"! DMARC TXT _dmarc.shop.test v=DMARC1; ",
		"AUTOCONFIG CNAME autoconfig.shop.test mail.service.test",
		"AUTODISCOVER CNAME autodiscover.shop.test mail.service.test",
		"SRV SRV _imaps._tcp.shop.test 1 10993 mail.service.test",
		"SRV SRV _submissions._tcp.shop.test 1 10465 mail.service.test",
		"SRV SRV _submission._tcp.shop.test 1 10587 mail.service.test",
		"MTA-STS TXT _mta-sts.shop.test v=STSv1; ",
		"MTA-STS CNAME mta-sts.shop.test mail.service.test",
		"TLS-RPT TXT _smtp._tls.shop.test v=TLSRPTv1; rua=mailto:postmaster@shop.test",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// dbOf opens only SQLite, for tests that don't depend on SQL.
func dbOf(t *testing.T) *db.DB {
	d, _ := leasetest.Open(t, dbtest.SQLite(t))
	return d
}

func TestListAndDelete(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ctx := t.Context()
		a, b := w.create(w.ann, "a.test"), w.create(w.ann, "b.test")
		w.create(w.bob, "a.test")
		list, more, err := w.List(ctx, w.ann, db.Page{Limit: 1})
		if err != nil || !more || len(list) != 1 || list[0].ID != b.ID || record(t, list[0], domain.KindDKIM).Name != record(t, b, domain.KindDKIM).Name {
			t.Errorf("list %+v, %t, %v", list, more, err)
		}
		list, more, err = w.List(ctx, w.ann, db.Page{After: b.ID})
		if err != nil || more || len(list) != 1 || list[0].ID != a.ID || len(list[0].Records) != len(a.Records) {
			t.Errorf("rest %+v, %t, %v", list, more, err)
		}
		if err := w.Delete(ctx, w.bob, a.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another's: %v", err)
		}
		w.HasMailboxes = func(_ context.Context, _ *db.Tx, id db.ID) (bool, error) { return id == a.ID, nil }
		if err := w.Delete(ctx, w.ann, a.ID); !fault.Is(err, fault.Conflict) {
			t.Errorf("with mailboxes: %v", err)
		}
		w.publish(b)
		w.check(b)
		if _, err := w.SendingDomain(ctx, w.ann, "b.test"); err != nil {
			t.Errorf("a verified domain may send: %v", err)
		}
		if _, ok, err := w.FindHosted(ctx, "b.test"); !ok || err != nil {
			t.Errorf("a verified domain is hosted: %t, %v", ok, err)
		}
		if err := w.Delete(ctx, w.ann, b.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := w.SendingDomain(ctx, w.ann, "b.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("a deleted domain sends: %v", err)
		}
		if _, ok, err := w.FindHosted(ctx, "b.test"); ok || err != nil {
			t.Errorf("a deleted domain is hosted: %t, %v", ok, err)
		}
		if _, err := w.SendingDomainByID(ctx, b.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("a deleted domain signs: %v", err)
		}
		if _, err := w.CheckDNS(ctx, w.ann, b.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("checking a deleted domain: %v", err)
		}
		again := w.create(w.ann, "b.test")
		if record(t, again, domain.KindDKIM).Name == record(t, b, domain.KindDKIM).Name {
			t.Error("a domain added again has new keys under the old selector")
		}
	})
}

var manyDomains = db.SQL(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
	INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at, next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
	SELECT i, $1, 'd' || CAST(i AS TEXT) || '.test', 'pending', FALSE, '', FALSE, FALSE, FALSE, '', 0, 0, 0, 0, 0, 0, 0 FROM n`)

// An account can't exceed the maximum number of domains, even with concurrent requests.
func TestMostDomains(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dbtest.Exec(t, d, manyDomains.With(w.ann, domain.MaxDomains-2))
		var all sync.WaitGroup
		errs := make([]error, 8)
		for n := range errs {
			all.Go(func() { _, errs[n] = w.Create(t.Context(), w.ann, fmt.Sprintf("more%d.test", n)) })
		}
		all.Wait()
		made := 0
		for _, err := range errs {
			var f *fault.Error
			if err == nil {
				made++
			} else if !errors.As(err, &f) || f.Kind != fault.Conflict || f.Code != "too_many_domains" {
				t.Error(err)
			}
		}
		if made != 2 {
			t.Errorf("%d were added where 2 had a place", made)
		}
		if _, err := w.Create(t.Context(), w.bob, "bob.test"); err != nil {
			t.Errorf("another account: %v", err)
		}
	})
}
