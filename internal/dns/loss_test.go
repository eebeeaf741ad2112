// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

// A lost question is sent again, and a late answer is still accepted.
func TestLost(t *testing.T) {
	lost := func(*wire.Msg) [][]byte { return nil }
	for name, script := range map[string][]func(q *wire.Msg) [][]byte{
		"lost":       {lost, func(q *wire.Msg) [][]byte { return [][]byte{packed(t, txtReply(t, q, "it"))} }},
		"lost twice": {lost, lost, func(q *wire.Msg) [][]byte { return [][]byte{packed(t, txtReply(t, q, "it"))} }},
	} {
		got, err := dnstest.Resolver(t, scripted(t, script...)).TXT(t.Context(), "a.test")
		if err != nil || !slices.Equal(got.Records, []string{"it"}) {
			t.Errorf("%s: %v, %v", name, got.Records, err)
		}
	}
	// The answer to the first question comes only after the second was sent and lost.
	server, _ := dnstest.Start(t, "a.test. TXT late")
	second := make(chan struct{})
	late := dnstest.StartProxy(t, server, func(n int, _ *wire.Msg) dnstest.Fault {
		if n == 1 {
			return dnstest.Fault{Delay: second}
		}
		if n == 2 {
			close(second)
		}
		return dnstest.Fault{Drop: true}
	})
	got, err := dnstest.Resolver(t, late.Addr).TXT(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.Records, []string{"late"}) {
		t.Errorf("late: %v, %v", got.Records, err)
	}
}

// Forged answers that arrive first, even from another port, change nothing, over UDP and if the
// answer needs TCP.
func TestForgeries(t *testing.T) {
	server, z := dnstest.Start(t, "a.test. TXT true")
	for i := range 40 {
		z.Add(fmt.Sprintf(`big.test. TXT "%02d%s"`, i, strings.Repeat("x", 198)))
	}
	path := dnstest.StartProxy(t, server, func(int, *wire.Msg) dnstest.Fault { return dnstest.Fault{Forge: true} })
	r := dnstest.Resolver(t, path.Addr)
	if got, err := r.TXT(t.Context(), "a.test"); err != nil || !slices.Equal(got.Records, []string{"true"}) {
		t.Errorf("%v, %v", got.Records, err)
	}
	if got, err := r.TXT(t.Context(), "big.test"); err != nil || len(got.Records) != 40 {
		t.Errorf("over TCP: %d records, %v", len(got.Records), err)
	}
}

// A server that truncates and then sends nothing over TCP costs the timeout only once.
func TestUnfinishedIsRemembered(t *testing.T) {
	var asked atomic.Int32
	hang := make(chan struct{})
	addr := dnstest.Serve(t, func(m *wire.Msg, q wire.Question) {
		if asked.Add(1) > 1 {
			<-hang
		}
		for range 40 {
			m.Answer = append(m.Answer, &wire.TXT{
				Hdr: wire.RR_Header{Name: q.Name, Rrtype: wire.TypeTXT, Class: wire.ClassINET}, Txt: []string{strings.Repeat("x", 200)},
			})
		}
	})
	t.Cleanup(func() { close(hang) })
	r := newResolver(t, dns.Config{Server: addr, Timeout: 300 * time.Millisecond, Now: func() time.Time { return time.Unix(1e9, 0) }})
	for range 2 {
		if _, err := r.TXT(t.Context(), "big.test"); !errors.Is(err, dns.ErrTemporary) {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want once over UDP and once over TCP", n)
	}
}

// A silent server costs the timeout only once.
func TestSilenceIsRemembered(t *testing.T) {
	addr, z := dnstest.Start(t, "other.test. TXT x")
	now := &clock{now: time.Unix(1e9, 0)}
	r := newResolver(t, dns.Config{Server: addr, Now: now.Now, Timeout: 20 * time.Millisecond})
	names := []string{"silent.test", "_dmarc.silent.test", "k._domainkey.silent.test"}
	for _, name := range names {
		z.Drop(name)
	}
	for range 3 {
		for _, name := range names {
			if _, err := r.TXT(t.Context(), name); !errors.Is(err, dns.ErrTemporary) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if a, b, c := z.QueryCount(names[0]), z.QueryCount(names[1]), z.QueryCount(names[2]); a != 1 || b != 0 || c != 0 {
		t.Errorf("asked %d, %d and %d times", a, b, c)
	}
	cached, missed := r.CacheOnly()
	if _, err := cached.TXT(t.Context(), names[0]); !errors.Is(err, dns.ErrTemporary) || missed.Load() {
		t.Errorf("it is not known that it failed: %v", err)
	}
	// An uncached lookup gets a new answer, which is then cached for all.
	z.ClearFaults(names[0])
	z.Set(names[0], "TXT healed")
	if _, err := r.Uncached().TXT(t.Context(), names[0]); err != nil {
		t.Errorf("fresh: %v", err)
	}
	if _, err := r.TXT(t.Context(), names[0]); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// A failure that a server reports is remembered too, longer each time.
func TestServFailIsRemembered(t *testing.T) {
	addr, z := dnstest.Start(t)
	z.ServFail("a.test")
	now := &clock{now: time.Unix(1e9, 0)}
	r := newResolver(t, dns.Config{Server: addr, Now: now.Now})
	for after, asked := range []int{1, 2, 2, 3, 3} { // 0, 5, 10, 15 and 20 s
		if after > 0 {
			now.Advance(5 * time.Second)
		}
		for range 2 {
			if _, err := r.TXT(t.Context(), "a.test"); !errors.Is(err, dns.ErrTemporary) {
				t.Error(err)
			}
		}
		if n := z.QueryCount("a.test"); n != asked {
			t.Errorf("after %d s it was asked for %d times, want %d", 5*after, n, asked)
		}
	}
}

// Servers that are silent about one domain delay no question about another, for any number of
// names.
func TestOpenQuestions(t *testing.T) {
	addr, z := dnstest.Start(t, "other.test. TXT x")
	r := newResolver(t, dns.Config{Server: addr, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	refused := make(chan error, 100)
	for i := range cap(refused) {
		name := fmt.Sprintf("n%d.silent.test", i)
		z.Drop(name)
		all.Go(func() {
			if _, err := r.TXT(ctx, name); ctx.Err() == nil {
				refused <- err
			}
		})
	}
	waitFor(t, func() bool { return dns.Open(r) > 0 && dns.Waiting(r)+len(refused) == cap(refused) })
	if _, err := r.TXT(t.Context(), "other.test"); err != nil {
		t.Errorf("another domain: %v", err)
	}
	// Questions without a slot fail soon, with that reason.
	waitFor(t, func() bool { return len(refused) == cap(refused)-32 })
	if n := dns.Open(r); n != 32 {
		t.Errorf("%d questions about one domain are open", n)
	}
	if err := <-refused; !errors.Is(err, dns.ErrTemporary) || !strings.Contains(err.Error(), "too many questions") {
		t.Errorf("one more: %v", err)
	}
	cancel()
	all.Wait()
	waitFor(t, func() bool { return dns.Open(r) == 0 })
}

// Names that no outside server knows are asked of none, unless a server is configured for them.
func TestLocalNames(t *testing.T) {
	own, zown := dnstest.Start(t, "7.0.0.10.in-addr.arpa. PTR seven.corp.example.")
	r := newResolver(t, dns.Config{Server: dnstest.ClosedAddr(t), Zones: map[string]string{"10.in-addr.arpa": own}})
	for _, ip := range []string{
		"127.0.0.1", "127.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.0.1", "0.0.0.0",
		"192.0.2.1", "198.51.100.7", "203.0.113.9", "255.255.255.255", "::1", "::", "fd00::1", "fe80::1", "febf::1", "2001:db8::1", "::ffff:127.0.0.1",
	} {
		if _, err := r.PTR(t.Context(), netip.MustParseAddr(ip)); !errors.Is(err, dns.ErrNotFound) {
			t.Errorf("%s: %v", ip, err)
		}
	}
	for _, ip := range []string{"172.32.0.1", "172.15.0.1", "100.128.0.1", "192.169.0.1", "8.8.8.8", "fc00::1", "2001:4860::1", "::2"} {
		if _, err := r.PTR(t.Context(), netip.MustParseAddr(ip)); !errors.Is(err, dns.ErrTemporary) {
			t.Errorf("%s is not asked for: %v", ip, err)
		}
	}
	if got, err := r.PTR(t.Context(), netip.MustParseAddr("10.0.0.7")); err != nil || got.Records[0] != "seven.corp.example" || zown.QueryCount("7.0.0.10.in-addr.arpa") != 1 {
		t.Errorf("a zone with a server of its own: %v, %v", got.Records, err)
	}
	for _, name := range []string{"a.invalid", "test", "shop.test", "x.onion"} {
		r := newResolver(t, dns.Config{Server: dnstest.ClosedAddr(t), Zones: map[string]string{}})
		if _, err := r.MX(t.Context(), name); !errors.Is(err, dns.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"localhost", "LocalHost.", "a.localhost"} {
		got, err := r.Addrs(t.Context(), name)
		if err != nil || fmt.Sprint(got.Records) != "[::1 127.0.0.1]" || got.Authentic {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := r.MX(t.Context(), name); !errors.Is(err, dns.ErrNoData) {
			t.Errorf("MX of %s: %v", name, err)
		}
	}
}

// If the servers of a domain were silent about one of its names, they are not asked for further
// names, unless they have answered for the domain lately.
func TestSilentDomainIsRemembered(t *testing.T) {
	addr, z := dnstest.Start(t, "there.example. TXT x")
	now := &clock{now: time.Unix(1e9, 0)}
	r := newResolver(t, dns.Config{Server: addr, Now: now.Now, Timeout: 20 * time.Millisecond})
	ask := func(name string) (asked bool) {
		t.Helper()
		z.Drop(name)
		if _, err := r.TXT(t.Context(), name); !errors.Is(err, dns.ErrTemporary) {
			t.Errorf("%s: %v", name, err)
		}
		return z.QueryCount(name) > 0
	}
	if _, err := r.TXT(t.Context(), "there.example"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false} {
		if asked := ask(fmt.Sprintf("n%d.silent.example", i)); asked != want {
			t.Errorf("name %d of a silent domain: asked %v", i, asked)
		}
		if !ask(fmt.Sprintf("n%d.there.example", i)) {
			t.Errorf("name %d of a domain that answers was not asked for", i)
		}
	}
	now.Advance(5 * time.Second)
	if !ask("later.silent.example") || ask("again.silent.example") {
		t.Error("after 5 s it is asked once more, and no more than once")
	}
	now.Advance(time.Hour)
	if !ask("n3.there.example") || ask("n4.there.example") {
		t.Error("an answer counts for an hour")
	}
	// Once it answers, it is no longer considered silent.
	z.Set("back.silent.example", "TXT back")
	if _, err := r.Uncached().TXT(t.Context(), "back.silent.example"); err != nil {
		t.Error(err)
	}
	if !ask("n9.silent.example") || !ask("n10.silent.example") {
		t.Error("a domain that answers again is not asked")
	}
}
