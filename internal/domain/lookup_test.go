// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
)

func TestSender(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ctx := t.Context()
		dom := w.create(w.ann, "shop.test")
		if _, err := w.SendingDomain(ctx, w.ann, "shop.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("before any check: %v", err)
		}
		w.blocked(dom, "ownership_not_verified dkim_not_verified", "ownership_not_verified mx_not_verified")
		// OWNERSHIP and one key are enough to send.
		keys := map[string]domain.Record{}
		for _, r := range dom.Records {
			if r.Kind == domain.KindDKIM {
				keys[r.Name[:4]] = r
			}
		}
		w.zone.Set(keys["ms1e"].Name, `TXT "`+keys["ms1e"].Value+`"`)
		w.expect(w.check(dom), domain.StatusPending, false, false)
		if _, err := w.SendingDomain(ctx, w.ann, "shop.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("a key without ownership: %v", err)
		}
		w.zone.Set("_mailstead.shop.test", `TXT "`+record(t, dom, domain.KindOwnership).Value+`"`)
		dom = w.check(dom)
		w.expect(dom, domain.StatusPending, false, true)
		w.blocked(dom, "", "mx_not_verified")
		s, err := w.SendingDomain(ctx, w.ann, "shop.test")
		if err != nil || s.Domain != dom.ID || s.Name != "shop.test" || s.Aligned {
			t.Fatalf("sender %+v, %v", s, err)
		}
		if len(s.Signer.Keys) != 1 || !strings.HasPrefix(s.Signer.Keys[0].Selector, "ms1e-") {
			t.Errorf("it signs with %d keys, not with the one that was seen", len(s.Signer.Keys))
		}
		head, err := s.Signer.Sign([]byte("From: a@shop.test\r\n\r\nHi\r\n"))
		if err != nil || !strings.Contains(string(head), "d=shop.test") {
			t.Errorf("signature %q, %v", head, err)
		}
		if _, err := w.SendingDomain(ctx, w.bob, "shop.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("another account: %v", err)
		}
		if _, err := w.SendingDomain(ctx, w.ann, "sub.shop.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("a name below: %v", err)
		}

		w.withdraw(dom)
		w.publish(dom)
		w.check(dom)
		both, err := w.SendingDomainByID(ctx, dom.ID)
		if err != nil || len(both.Signer.Keys) != 2 || !both.Aligned || both.Name != "shop.test" {
			t.Errorf("sender %+v, %v", both, err)
		}
		w.clock.Add(time.Minute)
		again, err := w.SendingDomain(ctx, w.ann, "shop.test")
		if err != nil || again.Signer != both.Signer {
			t.Errorf("the keys were read again: %v", err)
		}

		if err := w.SetSuspended(ctx, "Shop.test", true); err != nil {
			t.Fatal(err)
		}
		if _, err := w.SendingDomain(ctx, w.ann, "shop.test"); !fault.Is(err, fault.Denied) {
			t.Errorf("suspended: %v", err)
		}
		if _, err := w.VerifiedName(ctx, w.ann, dom.ID); !fault.Is(err, fault.Denied) {
			t.Errorf("suspended, owned: %v", err)
		}
		w.expect(w.check(dom), domain.StatusSuspended, false, false)
		if _, err := w.SendingDomainByID(ctx, dom.ID); err != nil {
			t.Errorf("suspended, queued: %v", err)
		}
	})
}

// A change on another node takes effect here with its notification, and without it after seconds.
func TestForgetting(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t, spfOfHost)
		w.zone = zone
		w.Domains = w.another(dnstest.Resolver(t, addr))
		node := w.another(dnstest.Resolver(t, addr))
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		hosted := func(want bool) {
			t.Helper()
			if _, ok, err := node.FindHosted(t.Context(), "shop.test"); err != nil || ok != want {
				t.Errorf("hosted %t, %v", ok, err)
			}
		}
		hosted(false)
		w.check(dom)
		hosted(false)
		w.clock.Add(5 * time.Second)
		hosted(true)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		idle := make(chan struct{}, 100)
		node.SetAfter(func(time.Duration) <-chan time.Time {
			idle <- struct{}{}
			return nil
		})
		go func() { ended <- node.Run(ctx) }()
		<-idle
		if err := w.Delete(t.Context(), w.ann, dom.ID); err != nil {
			t.Fatal(err)
		}
		for still := true; still; {
			// The notification and its handler take some time.
			node.Hub.Receive([]notify.Key{{Kind: notify.Domain}})
			<-idle
			_, ok, err := node.FindHosted(t.Context(), "shop.test")
			if err != nil {
				t.Fatal(err)
			}
			still = ok
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A changed setting takes effect immediately on the node that changed it, and on others after
// seconds even without the notification.
func TestChoices(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, _ := dnstest.Start(t, spfOfHost)
		w.Domains = w.another(dnstest.Resolver(t, addr))
		node := w.another(dnstest.Resolver(t, addr))
		dom := w.create(w.ann, "shop.test")
		chosen := func(on *domain.Domains, dmarc, spam domain.Enforcement) {
			t.Helper()
			e, err := on.DMARCEnforcement(t.Context(), dom.ID)
			f, more := on.SpamFiltering(t.Context(), dom.ID)
			if err := errors.Join(err, more); err != nil || e != dmarc || f != spam {
				t.Errorf("%s, %s, %v; want %s, %s", e, f, err, dmarc, spam)
			}
		}
		chosen(w.Domains, domain.EnforceFully, domain.EnforceFully)
		chosen(node, domain.EnforceFully, domain.EnforceFully)
		junk, off := domain.EnforceJunk, domain.EnforceOff
		if _, err := w.Update(t.Context(), w.ann, dom.ID, domain.Change{DMARCEnforcement: &junk, SpamFiltering: &off}); err != nil {
			t.Fatal(err)
		}
		chosen(w.Domains, domain.EnforceJunk, domain.EnforceOff)
		chosen(node, domain.EnforceFully, domain.EnforceFully)
		w.clock.Add(5 * time.Second)
		chosen(node, domain.EnforceJunk, domain.EnforceOff)
		node.Invalidate(dom.ID)
		if err := w.Delete(t.Context(), w.ann, dom.ID); err != nil {
			t.Fatal(err)
		}
		chosen(w.Domains, domain.EnforceFully, domain.EnforceFully)
	})
}

func TestHostedRemembersLittle(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "shop.test")
	w.publish(dom)
	w.check(dom)
	for i := range 10_000 {
		if _, ok, err := w.FindHosted(t.Context(), strings.Repeat("x", i%50+1)+string(rune('a'+i/50%26))+".test"); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if h, ok, err := w.FindHosted(t.Context(), "shop.test"); !ok || err != nil || h.Domain != dom.ID {
		t.Errorf("hosted %+v, %t, %v", h, ok, err)
	}
}

// The sandbox answers with the expected records, so domains are verified.
func TestSandbox(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ctx := t.Context()
		server := dnstest.ServeSource(t, dns.ServerConfig{}, w.ZoneRecords)
		resolver := dnstest.Resolver(t, server.Addr())
		w.Domains = w.another(resolver)
		a, b := w.create(w.ann, "demo.test"), w.create(w.bob, "demo.test")
		w.expect(w.check(a), domain.StatusVerified, true, true)
		for _, r := range w.check(a).Records {
			if r.Status != domain.RecordVerified {
				t.Errorf("%s: %s %s", r.Name, r.Status, r.Error)
			}
		}
		w.expect(w.check(b), domain.StatusPending, false, false)
		if txt, err := resolver.TXT(ctx, "_mailstead.demo.test"); err != nil || len(txt.Records) != 2 {
			t.Errorf("both claims' records: %v, %v", txt.Records, err)
		}
		if mx, err := resolver.MX(ctx, "demo.test"); err != nil || len(mx.Records) != 1 {
			t.Errorf("the same record once: %v, %v", mx.Records, err)
		}
		if addrs, err := resolver.Addrs(ctx, host); err != nil || len(addrs.Records) != 2 {
			t.Errorf("addresses %v, %v", addrs.Records, err)
		}
		if txt, err := resolver.TXT(ctx, "spf."+host); err != nil || txt.Records[0] != "v=spf1 ip4:127.0.0.1 ip6:::1 -all" {
			t.Errorf("SPF %v, %v", txt.Records, err)
		}
		if mx, err := resolver.MX(ctx, "bounces."+host); err != nil || mx.Records[0].Host != host {
			t.Errorf("bounces %v, %v", mx.Records, err)
		}
		for name, want := range map[string]error{
			"nobody.test": dns.ErrNotFound, "x.demo.test": dns.ErrNotFound, "_tcp.demo.test": dns.ErrNoData, "service.test": dns.ErrNoData,
		} {
			if _, err := resolver.TXT(ctx, name); err == nil || !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	})
}

func TestZone(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "shop.test")
	text, err := w.Zone(t.Context(), w.ann, dom.ID)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ';' {
			lines = append(lines, line)
		}
		for part := range strings.SplitSeq(line, `"`) {
			if len(part) > 255 {
				t.Errorf("a string of %d octets", len(part))
			}
		}
	}
	rrs, err := dns.ParseRecords(lines...)
	if err != nil || len(rrs) != len(dom.Records) {
		t.Errorf("%d records, %v, in\n%s", len(rrs), err, text)
	}
	if _, err := w.Zone(t.Context(), w.bob, dom.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's: %v", err)
	}
}

func BenchmarkHosted(b *testing.B) {
	benchmark(b, func(w *world) error { _, _, err := w.FindHosted(b.Context(), "shop.test"); return err })
}

func BenchmarkSender(b *testing.B) {
	benchmark(b, func(w *world) error { _, err := w.SendingDomain(b.Context(), w.ann, "shop.test"); return err })
}

func benchmark(b *testing.B, f func(w *world) error) {
	d, _ := leasetest.Open(b, dbtest.SQLite(b))
	w := open(b, d)
	dom := w.create(w.ann, "shop.test")
	w.publish(dom)
	w.check(dom)
	b.ReportAllocs()
	for b.Loop() {
		if err := f(w); err != nil {
			b.Fatal(err)
		}
	}
}
