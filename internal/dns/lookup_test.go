// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

func TestMX(t *testing.T) {
	addr, _ := dnstest.Start(t,
		"demo.test. 300 MX 20 B.demo.test.", "demo.test. 200 MX 10 a.demo.test.",
		"null.test. MX 0 .", "mixed.test. MX 0 .", "mixed.test. MX 5 mx.mixed.test.",
		"txt.test. TXT only")
	r := dnstest.Resolver(t, addr)
	got, err := r.MX(t.Context(), "DEMO.test")
	want := []dns.MX{{Host: "a.demo.test", Preference: 10}, {Host: "b.demo.test", Preference: 20}}
	if err != nil || !slices.Equal(got.Records, want) || got.Canonical != "demo.test" {
		t.Errorf("MX = %+v, %v", got, err)
	}
	if got.TTL <= 0 || got.TTL > 200*time.Second {
		t.Errorf("TTL %v, want the smaller one's", got.TTL)
	}
	if got.Authentic {
		t.Error("authentic without an AD bit")
	}
	if got, err := r.MX(t.Context(), "null.test."); err != nil || !dns.IsNullMX(got.Records) {
		t.Errorf("null MX: %+v, %v", got, err)
	}
	if got, err := r.MX(t.Context(), "mixed.test"); err != nil || dns.IsNullMX(got.Records) || len(got.Records) != 1 {
		t.Errorf("null MX beside another: %+v, %v", got, err)
	}
	if _, err := r.MX(t.Context(), "txt.test"); !errors.Is(err, dns.ErrNoData) {
		t.Errorf("MX of a name without: %v", err)
	}
}

func TestAddrs(t *testing.T) {
	addr, z := dnstest.Start(t,
		"both.test. A 192.0.2.1", "both.test. AAAA 2001:db8::1", "both.test. A 192.0.2.2",
		"four.test. A 192.0.2.4", "six.test. AAAA 2001:db8::6", "none.test. TXT x",
		"mapped.test. AAAA ::ffff:192.0.2.7")
	r := dnstest.Resolver(t, addr)
	for name, want := range map[string]string{
		"both.test":   "[2001:db8::1 192.0.2.1 192.0.2.2]",
		"four.test":   "[192.0.2.4]",
		"six.test":    "[2001:db8::6]",
		"mapped.test": "[192.0.2.7]",
	} {
		got, err := r.Addrs(t.Context(), name)
		if s := fmt.Sprint(got.Records); err != nil || s != want {
			t.Errorf("Addrs(%s) = %s, %v; want %s", name, s, err, want)
		}
	}
	z.ServFail("fails.test")
	for name, want := range map[string]error{"none.test": dns.ErrNoData, "no.test": dns.ErrNotFound, "fails.test": dns.ErrTemporary} {
		if _, err := r.Addrs(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("Addrs(%s): %v, want %v", name, err, want)
		}
	}
}

func TestTXT(t *testing.T) {
	addr, _ := dnstest.Start(t,
		`demo.test. TXT "v=spf1 " "-all"`, `demo.test. TXT "a\"b\\c\009d\255e"`)
	r := dnstest.Resolver(t, addr)
	got, err := r.TXT(t.Context(), "demo.test")
	slices.Sort(got.Records)
	want := []string{"a\"b\\c\td\xffe", "v=spf1 -all"}
	if err != nil || !slices.Equal(got.Records, want) {
		t.Errorf("TXT = %q, %v; want %q", got.Records, err, want)
	}
}

func TestTXTOverTCP(t *testing.T) {
	addr, z := dnstest.Start(t)
	var want []string
	for i := range 40 {
		s := fmt.Sprintf("%02d", i) + strings.Repeat("x", 198)
		want = append(want, s)
		z.Add(`big.test. TXT "` + s + `"`)
	}
	got, err := dnstest.Resolver(t, addr).TXT(t.Context(), "big.test")
	slices.Sort(got.Records)
	if err != nil || !slices.Equal(got.Records, want) {
		t.Errorf("%d of %d records, %v", len(got.Records), len(want), err)
	}
	if n := z.QueryCount("big.test"); n != 2 {
		t.Errorf("asked %d times, want once over UDP and once over TCP", n)
	}
}

func TestOtherTypes(t *testing.T) {
	addr, _ := dnstest.Start(t,
		"alias.test. CNAME Target.test.", "target.test. A 192.0.2.1",
		"_imaps._tcp.demo.test. SRV 20 0 993 b.demo.test.", "_imaps._tcp.demo.test. SRV 10 5 993 a.demo.test.",
		"1.2.0.192.in-addr.arpa. PTR Host.demo.test.")
	r := dnstest.Resolver(t, addr)
	if got, err := r.CNAME(t.Context(), "alias.test"); err != nil || !slices.Equal(got.Records, []string{"target.test"}) {
		t.Errorf("CNAME = %+v, %v", got, err)
	}
	if _, err := r.CNAME(t.Context(), "target.test"); !errors.Is(err, dns.ErrNoData) {
		t.Errorf("CNAME of a host: %v", err)
	}
	srv, err := r.SRV(t.Context(), "_imaps._tcp.demo.test")
	want := []dns.SRV{{Target: "a.demo.test", Port: 993, Priority: 10, Weight: 5}, {Target: "b.demo.test", Port: 993, Priority: 20}}
	if err != nil || !slices.Equal(srv.Records, want) {
		t.Errorf("SRV = %+v, %v", srv, err)
	}
	if got, err := r.PTR(t.Context(), netip.MustParseAddr("::ffff:192.0.2.1")); err != nil || !slices.Equal(got.Records, []string{"host.demo.test"}) {
		t.Errorf("PTR = %+v, %v", got, err)
	}
	if _, err := r.PTR(t.Context(), netip.Addr{}); !errors.Is(err, dns.ErrNotFound) {
		t.Errorf("PTR of nothing: %v", err)
	}
}

func TestCNAMEChains(t *testing.T) {
	addr, z := dnstest.Start(t,
		"a.test. 300 CNAME b.test.", "b.test. 20 CNAME C.test.", "c.test. 100 TXT end",
		"dangling.test. CNAME nowhere.test.", "empty.test. CNAME c.test.",
		"loop.test. CNAME pool.test.", "pool.test. CNAME loop.test.")
	for i := range 12 {
		z.Add(fmt.Sprintf("l%d.test. CNAME l%d.test.", i, i+1))
	}
	r := dnstest.Resolver(t, addr)
	got, err := r.TXT(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.Records, []string{"end"}) || got.Canonical != "c.test" || got.TTL > 20*time.Second {
		t.Errorf("chain: %+v, %v", got, err)
	}
	for name, want := range map[string]error{
		"dangling.test": dns.ErrNotFound, "empty.test": dns.ErrNoData,
		"loop.test": dns.ErrTemporary, "l0.test": dns.ErrTemporary,
	} {
		if _, err := r.MX(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("MX(%s): %v, want %v", name, err, want)
		}
	}
}

func TestAuthentic(t *testing.T) {
	addr, z := dnstest.Start(t, "signed.test. MX 10 mx.test.", "half.test. CNAME plain.test.", "plain.test. MX 10 mx.test.")
	z.SetAuthentic("signed.test")
	z.SetAuthentic("half.test")
	z.SetAuthentic("absent.test")
	trusting := dnstest.Resolver(t, addr)
	wary, err := dns.New(dnstest.Config(addr))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"signed.test": true, "half.test": false, "plain.test": false, "absent.test": true} {
		if got, _ := trusting.MX(t.Context(), name); got.Authentic != want {
			t.Errorf("%s: authentic %v, want %v", name, got.Authentic, want)
		}
		if got, _ := wary.MX(t.Context(), name); got.Authentic {
			t.Errorf("%s: authentic without being told to trust", name)
		}
	}
}

func TestBadNames(t *testing.T) {
	addr, _ := dnstest.Start(t)
	r := dnstest.Resolver(t, addr)
	for _, name := range []string{"", "a..test", "a b.test", "ü.test", `a\.test`, "a\x00.test", strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 128) + "test", strings.Repeat("a", 1<<20)} {
		if _, err := r.MX(t.Context(), name); !errors.Is(err, dns.ErrNotFound) {
			t.Errorf("MX(%.20q): %v", name, err)
		}
	}
}

func TestErrors(t *testing.T) {
	addr, z := dnstest.Start(t)
	z.ServFail("fails.test")
	r := dnstest.Resolver(t, addr)
	tests := []struct {
		name              string
		reason            error
		temporary, absent bool
	}{
		{"fails.test", dns.ErrTemporary, true, false},
		{"absent.test", dns.ErrNotFound, false, true},
	}
	for _, tt := range tests {
		_, err := r.TXT(t.Context(), tt.name)
		for _, reason := range []error{dns.ErrTemporary, dns.ErrNotFound, dns.ErrNoData} {
			if errors.Is(err, reason) != (reason == tt.reason) {
				t.Errorf("%v: Is %v = %v", err, reason, errors.Is(err, reason))
			}
		}
		var d *net.DNSError
		if !errors.As(err, &d) || d.IsTemporary != tt.temporary || d.IsNotFound != tt.absent {
			t.Errorf("%v: as net.DNSError %+v", err, d)
		}
		var n net.Error
		if !errors.As(err, &n) || n.Timeout() {
			t.Errorf("%v: as net.Error %v", err, n)
		}
	}
	z.Drop("silent.test")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.TXT(ctx, "silent.test")
	if !errors.Is(err, dns.ErrTemporary) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
