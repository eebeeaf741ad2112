// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
)

// hostOf is the service at two public addresses, with a DNS that has no records of it.
func hostOf(t *testing.T, w *world) (*domain.Host, *dnstest.Zone) {
	t.Helper()
	addr, zone := dnstest.Start(t)
	h, err := w.LoadHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Resolver = dnstest.Resolver(t, addr)
	h.Addrs = []netip.Addr{netip.MustParseAddr("9.9.9.1"), netip.MustParseAddr("2620:fe::1")}
	return h, zone
}

func checkHost(t *testing.T, h *domain.Host) []domain.Record {
	t.Helper()
	all, err := h.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// publishAll publishes all records that the service expects.
func publishAll(t *testing.T, h *domain.Host, zone *dnstest.Zone) {
	t.Helper()
	for _, r := range checkHost(t, h) {
		if r.Type == "A" || r.Type == "AAAA" {
			zone.Add(r.Name + ". " + r.Type + " " + r.Value)
		} else {
			zone.Publish(r.Type, r.Name, r.Value, r.Priority)
		}
	}
}

// TestHostRecords checks the service's own records: with none published, with all, and with each
// one missing or wrong.
func TestHostRecords(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		h, zone := hostOf(t, w)
		before := checkHost(t, h)
		for _, r := range before {
			if r.Status != domain.RecordFailed || r.Error == "" || r.Note == "" || r.LastCheckedAt == nil {
				t.Errorf("not published: %+v", r)
			}
		}
		if n := len(before); n != 11 {
			t.Errorf("%d records", n)
		}
		publishAll(t, h, zone)
		for _, r := range checkHost(t, h) {
			if r.Status != domain.RecordVerified || r.Error != "" || !r.Required && r.Kind != domain.KindMX && r.Type != "AAAA" {
				t.Errorf("published: %+v", r)
			}
		}

		dkim := h.Key.Selector + "._domainkey." + host
		const v4, v6, none = "A 9.9.9.1", "AAAA 2620:fe::1", "1.9.9.9.in-addr.arpa"
		const mx, spf = "MX 10 " + host + ".", `TXT "v=spf1 include:spf.` + host + ` -all"`
		for _, c := range []struct {
			name  string
			lines []string
			kind  string
			at    string // of the record that fails
			words string
		}{
			{host, []string{v6, mx, spf}, domain.KindReverse, none, "that name has no such address"},
			{host, []string{mx, spf}, domain.KindAddress, host, "No A record was found at " + host + ". Publish: " + host + " A 9.9.9.1"},
			{host, []string{v4, v6, "A 10.0.0.1", mx, spf}, domain.KindAddress, host, "10.0.0.1, which nobody on the Internet can reach"},
			{host, []string{v4, v6, spf}, domain.KindMX, host, "No MX record was found at " + host},
			{host, []string{v4, v6, mx}, domain.KindSPF, host, "No SPF record was found at " + host + ". Publish: "},
			{host, []string{v4, v6, mx, `TXT "v=spf1 a:other.test -all"`}, domain.KindSPF, host, "does not allow 9.9.9.1, 2620:fe::1"},
			{"spf." + host, nil, domain.KindSPF, "spf." + host, "every domain's SPF record includes it: receivers ignore them all"},
			{"spf." + host, nil, domain.KindSPF, host, "it includes spf." + host + ", which has no record"},
			{"spf." + host, []string{`TXT "v=spf1 ip4:9.9.9.1 -all"`}, domain.KindSPF, "spf." + host, "does not allow 2620:fe::1, which mail leaves from. Publish: spf." + host + " TXT v=spf1 ip4:9.9.9.1 ip6:2620:fe::1 -all"},
			{"spf." + host, []string{`TXT "v=spf1 ip4:9.9.9.300 -all"`}, domain.KindSPF, "spf." + host, "Receivers ignore the SPF record: the record of spf." + host + ": bad"},
			{"bounces." + host, []string{spf}, domain.KindMX, "bounces." + host, "No MX record was found at bounces." + host},
			{"bounces." + host, []string{"MX 10 other.test.", spf}, domain.KindMX, "bounces." + host, "goes to other.test, not to us"},
			{"bounces." + host, []string{mx}, domain.KindSPF, "bounces." + host, "No SPF record was found at bounces." + host},
			{dkim, nil, domain.KindDKIM, dkim, "No TXT record was found at " + dkim},
			{dkim, []string{`TXT "v=DKIM1; k=rsa; p="`}, domain.KindDKIM, dkim, "revoked"},
			{"_dmarc." + host, nil, domain.KindDMARC, "_dmarc." + host, "No TXT record was found at _dmarc." + host},
			{none, nil, domain.KindReverse, none, "9.9.9.1 has no reverse name. Ask the provider"},
			{none, []string{"PTR vps17.hoster.test."}, domain.KindReverse, none, "The reverse name of 9.9.9.1 is vps17.hoster.test"},
		} {
			zone.Set(c.name, c.lines...)
			all := checkHost(t, h)
			at := slices.IndexFunc(all, func(r domain.Record) bool {
				return r.Kind == c.kind && r.Name == c.at && r.Status == domain.RecordFailed
			})
			if at < 0 || !strings.Contains(all[at].Error, c.words) {
				t.Errorf("%s %q: %+v, want %q", c.name, c.lines, all, c.words)
			}
			for _, r := range checkHost(t, h) {
				zone.Set(r.Name)
			}
			publishAll(t, h, zone)
		}

		zone.ServFail("spf." + host)
		for _, r := range checkHost(t, h) {
			if want := map[bool]string{true: domain.RecordTemporaryFailure, false: domain.RecordVerified}[r.Kind == domain.KindSPF]; r.Status != want {
				t.Errorf("no answer about spf: %+v", r)
			}
		}
	})
}

// TestHostOfUnknownAddress checks a service behind NAT, which knows no public address of its own,
// and one that sends through a relay.
func TestHostOfUnknownAddress(t *testing.T) {
	w := open(t, dbOf(t))
	h, zone := hostOf(t, w)
	h.Addrs = nil
	all := checkHost(t, h)
	if r := all[0]; r.Kind != domain.KindAddress || !strings.Contains(r.Value, "PUBLIC-ADDRESS") {
		t.Errorf("%+v", r)
	}
	text := h.Zone(all)
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "PUBLIC-ADDRESS") && line[0] != ';' {
			t.Errorf("a zone file would publish %s", line)
		}
	}
	if _, err := dns.ParseRecords(slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return l == "" || l[0] == ';' })...); err != nil {
		t.Error(err)
	}
	// One of two addresses only receives.
	zone.Add(host+". A 9.9.9.1", host+". A 9.9.9.2", "spf."+host+`. TXT "v=spf1 ip4:9.9.9.2 -all"`)
	for _, r := range checkHost(t, h) {
		if (r.Kind == domain.KindAddress || r.Name == "spf."+host) && r.Status != domain.RecordVerified {
			t.Errorf("%+v", r)
		}
	}
	h.UsesSmartHost = true
	zone.Set("spf."+host, `TXT "v=spf1 include:_spf.relay.test -all"`)
	spf := func() domain.Record {
		all := checkHost(t, h)
		if slices.ContainsFunc(all, func(r domain.Record) bool { return r.Kind == domain.KindReverse }) {
			t.Error("a reverse name is asked for though the relay sends")
		}
		return all[slices.IndexFunc(all, func(r domain.Record) bool { return r.Kind == domain.KindSPF })]
	}
	if r := spf(); r.Status != domain.RecordFailed || !strings.Contains(r.Error, "it includes _spf.relay.test, which has no record") {
		t.Errorf("%+v", r)
	}
	zone.Add(`_spf.relay.test. TXT "v=spf1 ip4:9.9.9.9 -all"`)
	if r := spf(); r.Status != domain.RecordVerified {
		t.Errorf("%+v", r)
	}
}

// TestHostKey checks that the service's key is generated once, no matter which node is first.
func TestHostKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		if k, err := domain.ReadHostDKIMKey(t.Context(), d); k != nil || err != nil {
			t.Fatalf("there is one: %+v, %v", k, err)
		}
		keys := make([]domain.HostDKIMKey, 4)
		var nodes sync.WaitGroup
		for i := range keys {
			node := w.another(w.Resolver)
			nodes.Go(func() {
				signer, err := node.HostSigner(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				k, err := node.HostDKIMKey(t.Context())
				if err != nil || signer.Domain != host || len(signer.Keys) != 1 || signer.Keys[0].Selector != k.Selector {
					t.Errorf("%+v, %+v, %v", signer, k, err)
					return
				}
				keys[i] = *k
			})
		}
		nodes.Wait()
		for _, k := range keys {
			if k != keys[0] {
				t.Errorf("two keys: %+v and %+v", k, keys[0])
			}
		}
		// The sandbox publishes it.
		name := keys[0].Selector + "._domainkey." + host
		a, err := w.ZoneRecords(t.Context(), name+".")
		if err != nil || len(a.Records) != 1 || a.Records[0].Header().Name != name+"." {
			t.Errorf("%+v, %v", a, err)
		}
	})
}
