// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
)

func TestLifeOfADomain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.expect(w.check(dom), domain.StatusPending, false, false)
		if _, err := w.VerifiedName(t.Context(), w.ann, dom.ID); !fault.Is(err, fault.Denied) {
			t.Errorf("owned without a proof: %v", err)
		}

		w.zone.Add("_mailstead.shop.test. TXT " + `"` + record(t, dom, domain.KindOwnership).Value + `"`)
		owned, err := w.VerifyOwnership(t.Context(), w.ann, dom.ID)
		if err != nil || owned.OwnershipStatus != domain.StatusVerified {
			t.Fatalf("ownership %s, %v", owned.OwnershipStatus, err)
		}
		w.expect(owned, domain.StatusPending, false, false)
		if name, err := w.VerifiedName(t.Context(), w.ann, dom.ID); err != nil || name != "shop.test" {
			t.Errorf("owned: %q, %v", name, err)
		}

		w.publish(dom)
		verified := w.check(dom)
		w.expect(verified, domain.StatusVerified, true, true)
		for _, r := range verified.Records {
			if r.Status != domain.RecordVerified || r.Error != "" || r.LastCheckedAt == nil || len(r.Observed) == 0 {
				t.Errorf("%s: %+v", r.Kind, r)
			}
		}
		w.check(dom)
		if n := w.verifiedEvents(w.ann); n != 1 {
			t.Errorf("%d events", n)
		}

		// The MX record moves away: sending and receiving change immediately, the status after a
		// day.
		w.zone.Set("shop.test", "MX 10 mx.elsewhere.test.", `TXT "v=spf1 include:spf.mail.service.test -all"`)
		w.expect(w.check(dom), domain.StatusVerified, false, true)
		w.clock.Add(23 * time.Hour)
		w.expect(w.check(dom), domain.StatusVerified, false, true)
		w.clock.Add(time.Hour)
		w.expect(w.check(dom), domain.StatusDegraded, false, true)

		// A degraded domain can send while a DKIM key is seen.
		for _, r := range dom.Records {
			if r.Kind == domain.KindDKIM {
				w.zone.Set(r.Name)
			}
		}
		w.expect(w.check(dom), domain.StatusDegraded, false, false)

		w.withdraw(dom)
		w.publish(dom)
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		if n := w.verifiedEvents(w.ann); n != 2 {
			t.Errorf("%d events after the second entry", n)
		}
	})
}

func TestKeysMissingForAMoment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		for _, r := range dom.Records {
			w.zone.Set(r.Name)
		}
		w.expect(w.check(dom), domain.StatusVerified, false, true)
		w.clock.Add(24 * time.Hour)
		got := w.check(dom)
		w.expect(got, domain.StatusDegraded, false, false)
		if r := record(t, got, domain.KindOwnership); r.Status != domain.RecordVerified || r.Error == "" {
			t.Errorf("the ownership stays proven, with a warning: %+v", r)
		}
	})
}

func TestNoAnswerChangesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		before := w.check(dom)
		w.expect(before, domain.StatusVerified, true, true)

		for _, r := range dom.Records {
			w.zone.ServFail(r.Name)
		}
		for range 3 {
			w.clock.Add(24 * time.Hour)
			w.expect(w.check(dom), domain.StatusVerified, true, true)
		}
		got := w.check(dom)
		for i, r := range got.Records {
			if r.Status != domain.RecordTemporaryFailure || r.Error == "" || len(r.Observed) != len(before.Records[i].Observed) {
				t.Errorf("%s: %+v", r.Kind, r)
			}
		}
		if s, err := w.SendingDomain(t.Context(), w.ann, "shop.test"); err != nil || !s.Aligned || len(s.Signer.Keys) != 2 {
			t.Errorf("sender %+v, %v", s, err)
		}
		if h, ok, err := w.FindHosted(t.Context(), "shop.test"); err != nil || !ok || !h.Receives {
			t.Errorf("hosted %+v, %t, %v", h, ok, err)
		}

		// Without answers a degraded domain doesn't recover either.
		for _, r := range dom.Records {
			w.zone.ClearFaults(r.Name)
		}
		w.zone.Set("shop.test")
		w.check(dom)
		w.clock.Add(24 * time.Hour)
		w.expect(w.check(dom), domain.StatusDegraded, false, true)
		w.zone.ServFail("shop.test")
		w.expect(w.check(dom), domain.StatusDegraded, false, true)
		if n := w.verifiedEvents(w.ann); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

func TestTimeoutChangesNothing(t *testing.T) {
	addr, zone := dnstest.Start(t, spfOfHost)
	w := open(t, dbOf(t))
	w.zone, w.Domains = zone, w.another(dnstest.Resolver(t, addr))
	dom := w.create(w.ann, "shop.test")
	w.publish(dom)
	w.expect(w.check(dom), domain.StatusVerified, true, true)
	for _, r := range dom.Records {
		zone.Drop(r.Name)
	}
	impatient := dnstest.Config(addr)
	impatient.Timeout = 20 * time.Millisecond
	hasty, err := dns.New(impatient)
	if err != nil {
		t.Fatal(err)
	}
	w.Domains = w.another(hasty)
	w.clock.Add(48 * time.Hour)
	w.expect(w.check(dom), domain.StatusVerified, true, true)
}

// TestInclude checks the records that a domain's SPF record includes: without them receivers ignore
// it (permanent error).
func TestInclude(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		const ours = "spf.mail.service.test"
		spf := func(status, words string) domain.Domain {
			t.Helper()
			got := w.check(dom)
			if r := record(t, got, domain.KindSPF); r.Status != status || !strings.Contains(r.Error, words) || words == "" && r.Error != "" {
				t.Errorf("%s %q, want %s %q", r.Status, r.Error, status, words)
			}
			return got
		}
		w.zone.Set(ours)
		w.expect(spf(domain.RecordFailed, "Only the operator of this service can correct that"), domain.StatusPending, true, true)
		w.zone.Set(ours, `TXT "v=spf1 ip4:127.0.0.1 -all"`)
		w.expect(spf(domain.RecordVerified, ""), domain.StatusVerified, true, true)

		// Without an answer nothing changes, for any time.
		w.zone.ServFail(ours)
		w.clock.Add(48 * time.Hour)
		w.expect(spf(domain.RecordTemporaryFailure, "no answer about "+ours), domain.StatusVerified, true, true)
		w.clock.Add(48 * time.Hour)
		w.expect(spf(domain.RecordTemporaryFailure, "we will ask again"), domain.StatusVerified, true, true)
		w.zone.ClearFaults(ours)

		// An include of the customer's own that doesn't resolve.
		apex := func(record string) { w.zone.Set("shop.test", "MX 10 mail.service.test.", `TXT "`+record+`"`) }
		apex("v=spf1 include:" + ours + " include:gone.test ~all")
		w.expect(spf(domain.RecordVerified, "For other senders receivers ignore the SPF record: it includes gone.test, which has no record"), domain.StatusVerified, true, true)
		apex("v=spf1 include:gone.test include:" + ours + " ~all")
		w.expect(spf(domain.RecordFailed, "Receivers ignore the SPF record: it includes gone.test, which has no record"), domain.StatusVerified, true, true)
		w.clock.Add(24 * time.Hour)
		w.expect(w.check(dom), domain.StatusDegraded, true, true)
		apex("v=spf1 include:" + ours + " ~all")
		w.expect(spf(domain.RecordVerified, ""), domain.StatusVerified, true, true)
	})
}

func TestOneTransitionOneEvent(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if _, err := w.CheckDNS(t.Context(), w.ann, dom.ID); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		if n := w.verifiedEvents(w.ann); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

func TestTwoClaimsOneHolder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		a, b := w.create(w.ann, "shop.test"), w.create(w.bob, "shop.test")
		w.publish(a)
		w.publish(b)
		var group sync.WaitGroup
		for range 5 {
			for _, dom := range []domain.Domain{a, b} {
				group.Go(func() {
					if _, err := w.VerifyOwnership(t.Context(), dom.Account, dom.ID); err != nil {
						t.Error(err)
					}
				})
			}
		}
		group.Wait()
		a, b = w.check(a), w.check(b)
		if (a.OwnershipStatus == domain.StatusVerified) == (b.OwnershipStatus == domain.StatusVerified) {
			t.Errorf("one holds the name, not %s and %s", a.OwnershipStatus, b.OwnershipStatus)
		}
	})
}

func TestChangeOfHands(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ctx := t.Context()
		a, b := w.create(w.ann, "shop.test"), w.create(w.bob, "shop.test")
		w.publish(a)
		w.expect(w.check(a), domain.StatusVerified, true, true)

		// Both records: the owner keeps the name indefinitely.
		ownership := "_mailstead.shop.test"
		ofA, ofB := `TXT "`+record(t, a, domain.KindOwnership).Value+`"`, `TXT "`+record(t, b, domain.KindOwnership).Value+`"`
		w.zone.Set(ownership, ofA, ofB)
		for range 2 {
			w.clock.Add(25 * time.Hour)
			w.expect(w.check(b), domain.StatusPending, false, false)
		}
		if r := record(t, w.check(b), domain.KindOwnership); r.Status != domain.RecordFailed || r.Error == "" {
			t.Errorf("the newcomer is told: %+v", r)
		}

		// No record: the owner keeps it too.
		w.zone.Set(ownership)
		w.clock.Add(25 * time.Hour)
		w.check(b)
		w.expect(w.check(a), domain.StatusVerified, true, true)

		// Only the new claim's record, but the owner's comes back in between.
		w.zone.Set(ownership, ofB)
		w.check(b)
		w.clock.Add(20 * time.Hour)
		w.zone.Set(ownership, ofA, ofB)
		w.check(a)
		w.zone.Set(ownership, ofB)
		w.clock.Add(5 * time.Hour)
		w.expect(w.check(b), domain.StatusPending, false, false)
		got := w.check(a)
		if r := record(t, got, domain.KindOwnership); r.Status != domain.RecordFailed || got.OwnershipStatus != domain.StatusVerified {
			t.Errorf("the holder is told: %+v", r)
		}

		// A day without the owner's record.
		if _, ok, err := w.FindHosted(ctx, "shop.test"); !ok || err != nil {
			t.Errorf("hosted: %t, %v", ok, err)
		}
		w.publish(b)
		w.zone.Set(ownership, ofB)
		w.clock.Add(24 * time.Hour)
		w.expect(w.check(b), domain.StatusVerified, true, true)
		lost, err := w.Get(ctx, w.ann, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.expect(lost, domain.StatusFailed, false, false)
		h, ok, err := w.FindHosted(ctx, "shop.test")
		if err != nil || !ok || h.Domain != b.ID || h.Account != w.bob {
			t.Errorf("hosted by %+v, %t, %v", h, ok, err)
		}
		if _, err := w.SendingDomain(ctx, w.ann, "shop.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("the former holder sends: %v", err)
		}
		if _, err := w.VerifiedName(ctx, w.ann, a.ID); !fault.Is(err, fault.Denied) {
			t.Errorf("the former holder owns: %v", err)
		}
		if _, err := w.SendingDomainByID(ctx, a.ID); err != nil {
			t.Errorf("what the former holder had queued can be signed: %v", err)
		}
		w.expect(w.check(a), domain.StatusFailed, false, false)
		if na, nb := w.verifiedEvents(w.ann), w.verifiedEvents(w.bob); na != 1 || nb != 1 {
			t.Errorf("%d and %d events", na, nb)
		}

		// The same in reverse.
		w.zone.Set(ownership, ofA)
		w.check(a)
		w.clock.Add(24 * time.Hour)
		w.expect(w.check(a), domain.StatusVerified, true, true)
	})
}
