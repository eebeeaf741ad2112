// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

// clock is a clock that the test advances.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newResolver(t *testing.T, c dns.Config) *dns.Resolver {
	t.Helper()
	if c.Zones == nil {
		c.Zones = dnstest.Config(c.Server).Zones
	}
	r, err := dns.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCache(t *testing.T) {
	addr, z := dnstest.Start(t, "a.test. 100 TXT one", "long.test. 999999 TXT one", "zero.test. 0 TXT one")
	now := &clock{now: time.Unix(1e9, 0)}
	r := newResolver(t, dns.Config{Server: addr, Now: now.Now, MaxTTL: 200 * time.Second})
	expect := func(name, text string, asked int) {
		t.Helper()
		got, err := r.TXT(t.Context(), name)
		if err != nil || !slices.Equal(got.Records, []string{text}) {
			t.Errorf("TXT(%s) = %q, %v; want %q", name, got.Records, err, text)
		}
		if n := z.QueryCount(name); n != asked {
			t.Errorf("%s was asked for %d times, want %d", name, n, asked)
		}
	}
	for range 3 {
		expect("a.test", "one", 1)
	}
	z.Set("a.test", "100 TXT two")
	expect("A.TEST.", "one", 1)
	got, err := r.Uncached().TXT(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.Records, []string{"two"}) {
		t.Errorf("fresh: %+v, %v", got, err)
	}
	expect("a.test", "two", 2)
	now.Advance(99 * time.Second)
	expect("a.test", "two", 2)
	now.Advance(time.Second)
	expect("a.test", "two", 3)

	expect("long.test", "one", 1)
	now.Advance(200 * time.Second)
	expect("long.test", "one", 2)

	expect("zero.test", "one", 1)
	expect("zero.test", "one", 2)
}

func TestNegativeCache(t *testing.T) {
	now := &clock{now: time.Unix(1e9, 0)}
	zone := dnstest.NewRecords()
	if err := zone.Set("a.b.test", "TXT x"); err != nil {
		t.Fatal(err)
	}
	s := dnstest.ServeSource(t, dns.ServerConfig{NegativeTTL: 60 * time.Second}, zone.Source)
	r := newResolver(t, dns.Config{Server: s.Addr(), Now: now.Now})
	_, errName := r.TXT(t.Context(), "c.test")
	res, errData := r.TXT(t.Context(), "b.test")
	if !errors.Is(errName, dns.ErrNotFound) || !errors.Is(errData, dns.ErrNoData) {
		t.Fatalf("errors %v; %v", errName, errData)
	}
	if res.TTL != 60*time.Second {
		t.Errorf("TTL of the absence %v", res.TTL)
	}
	for _, name := range []string{"c.test", "b.test"} {
		if err := zone.Set(name, "TXT new"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.TXT(t.Context(), name); err == nil {
			t.Errorf("%s: the absence was not kept", name)
		}
		if _, err := r.Uncached().TXT(t.Context(), name); err != nil {
			t.Errorf("%s, fresh: %v", name, err)
		}
	}
	_, _ = r.TXT(t.Context(), "d.test")
	if err := zone.Set("d.test", "TXT new"); err != nil {
		t.Fatal(err)
	}
	now.Advance(60 * time.Second)
	if _, err := r.TXT(t.Context(), "d.test"); err != nil {
		t.Errorf("the absence was kept too long: %v", err)
	}
}

func TestFailureIsNotCached(t *testing.T) {
	addr, z := dnstest.Start(t, "a.test. TXT x")
	r := dnstest.Resolver(t, addr)
	z.ServFail("a.test")
	if _, err := r.TXT(t.Context(), "a.test"); !errors.Is(err, dns.ErrTemporary) {
		t.Errorf("SERVFAIL: %v", err)
	}
	if n := z.QueryCount("a.test"); n != 1 {
		t.Errorf("asked %d times: the only server had spoken", n)
	}
	z.ClearFaults("a.test")
	if _, err := r.TXT(t.Context(), "a.test"); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// Cached answers come at once, and other questions are not sent.
func TestCached(t *testing.T) {
	addr, z := dnstest.Start(t, "a.test. 100 TXT one", "a.test. 100 A 192.0.2.1", "b.test. 100 CNAME a.test.")
	r := newResolver(t, dns.Config{Server: addr})
	c, missed := r.CacheOnly()
	if _, err := c.TXT(t.Context(), "a.test"); !errors.Is(err, dns.ErrTemporary) || !missed.Load() {
		t.Errorf("not known yet: %v, missed %t", err, missed.Load())
	}
	if _, err := c.Addrs(t.Context(), "a.test"); !errors.Is(err, dns.ErrTemporary) {
		t.Errorf("addresses not known yet: %v", err)
	}
	if n := z.QueryCount("a.test"); n != 0 {
		t.Errorf("it was asked for %d times", n)
	}
	for _, name := range []string{"a.test", "b.test", "none.test"} {
		want, werr := r.TXT(t.Context(), name)
		c, missed := r.CacheOnly()
		got, err := c.TXT(t.Context(), name)
		if !slices.Equal(got.Records, want.Records) || errors.Is(err, dns.ErrNotFound) != errors.Is(werr, dns.ErrNotFound) || missed.Load() {
			t.Errorf("%s: %v, %v, missed %t; want %v, %v", name, got.Records, err, missed.Load(), want.Records, werr)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	addr, z := dnstest.Start(t, "a.test. TXT x", "b.test. TXT x", "c.test. TXT x")
	r := newResolver(t, dns.Config{Server: addr, CacheEntries: 2})
	for _, name := range []string{"a.test", "b.test", "a.test", "c.test", "a.test", "b.test"} {
		if _, err := r.TXT(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := z.QueryCount("a.test"), z.QueryCount("b.test"); a != 1 || b != 2 {
		t.Errorf("asked for a %d times, for b %d times; the least used was to go", a, b)
	}
}

func TestTimeoutAndRetries(t *testing.T) {
	addr, z := dnstest.Start(t, "a.test. TXT x")
	z.Drop("a.test")
	r := newResolver(t, dns.Config{Server: addr, Timeout: 20 * time.Millisecond})
	_, err := r.TXT(t.Context(), "a.test")
	var n net.Error
	if !errors.Is(err, dns.ErrTemporary) || !errors.As(err, &n) || !n.Timeout() {
		t.Errorf("no answer: %v", err)
	}
}

func TestNothingListens(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.LocalAddr().String()
	_ = l.Close()
	if _, err := dnstest.Resolver(t, addr).MX(t.Context(), "a.test"); !errors.Is(err, dns.ErrTemporary) {
		t.Errorf("MX = %v", err)
	}
}

func TestSharedAsking(t *testing.T) {
	begun, let := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	s := dnstest.ServeSource(t, dns.ServerConfig{}, func(context.Context, string) (dns.NameData, error) {
		asked.Add(1)
		close(begun)
		<-let
		rrs, err := dns.ParseRecords("a.test. TXT x")
		return dns.NameData{Records: rrs}, err
	})
	r := newResolver(t, dns.Config{Server: s.Addr(), Timeout: time.Minute})
	dns.Patient(r)

	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := r.TXT(first, "a.test")
		gone <- err
	}()
	<-begun
	var wg sync.WaitGroup
	results := make(chan error, 10)
	for range cap(results) {
		wg.Go(func() {
			_, err := r.TXT(t.Context(), "a.test")
			results <- err
		})
	}
	waitFor(t, func() bool { return dns.Waiting(r) == 11 })
	// The caller that started the query leaves; the others still get the answer.
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled one got %v", err)
	}
	close(let)
	wg.Wait()
	close(results)
	for err := range results {
		if err != nil {
			t.Errorf("one who waited got %v", err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// waitFor yields until a condition holds, which other goroutines cause.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("waited in vain")
		}
	}
}

func TestLastWaiterEndsTheAsking(t *testing.T) {
	addr, z := dnstest.Start(t)
	z.Drop("a.test")
	r := newResolver(t, dns.Config{Server: addr, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := r.TXT(ctx, "a.test"); !errors.Is(err, context.Canceled) {
			t.Errorf("TXT = %v", err)
		}
	}()
	waitFor(t, func() bool { return z.QueryCount("a.test") > 0 })
	cancel()
	<-done // that its goroutine is gone too, TestMain checks
}

func TestZones(t *testing.T) {
	inside, zin := dnstest.Start(t, "demo.test. MX 10 mx.demo.test.")
	outside, zout := dnstest.Start(t, "demo.test. MX 10 wrong.", "public.org. MX 10 mx.public.org.",
		"www.public.org. TXT outside", "in.public.org. CNAME demo.test.")
	// A real server outside knows nothing of the reserved names.
	zout.NXDomain("demo.test")
	sandbox, _ := serve(t, "out.example. CNAME www.public.org.")
	r := newResolver(t, dns.Config{Server: outside, Zones: map[string]string{"test": inside}})
	for name, want := range map[string]string{"demo.test": "mx.demo.test", "public.org": "mx.public.org"} {
		got, err := r.MX(t.Context(), name)
		if err != nil || len(got.Records) != 1 || got.Records[0].Host != want {
			t.Errorf("MX(%s) = %+v, %v; want %s", name, got, err, want)
		}
	}
	if zin.QueryCount("public.org") != 0 || zout.QueryCount("demo.test") != 0 {
		t.Error("the wrong server was asked")
	}
	if _, err := r.MX(t.Context(), "in.public.org"); !errors.Is(err, dns.ErrNotFound) {
		t.Errorf("a name outside that leads in: %v", err)
	}
	// A CNAME leads out of the zone; the zone's server knows no names outside.
	r = newResolver(t, dns.Config{Server: outside, Zones: map[string]string{"example.": sandbox.Addr()}})
	got, err := r.TXT(t.Context(), "out.example")
	if err != nil || !slices.Equal(got.Records, []string{"outside"}) {
		t.Errorf("out of the zone: %+v, %v", got, err)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []dns.Config{{Server: "127.0.0.1"}, {Server: ":53"}, {Server: "127.0.0.1:53", Zones: map[string]string{"test": "x"}}, {Zones: map[string]string{"a b": "127.0.0.1:53"}}} {
		if _, err := dns.New(c); err == nil {
			t.Errorf("New(%+v) passed", c)
		}
	}
	if _, err := dns.New(dns.Config{}); err != nil {
		t.Errorf("the system's servers: %v", err)
	}
}

// scripted answers each packet, in turn, with what the script makes of it.
func scripted(t *testing.T, script ...func(q *wire.Msg) [][]byte) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for _, step := range script {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(wire.Msg)
			if err := q.Unpack(buf[:n]); err != nil {
				t.Error(err)
				return
			}
			for _, p := range step(q) {
				if _, err := conn.WriteTo(p, from); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return conn.LocalAddr().String()
}

func packed(t *testing.T, m *wire.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func txtReply(t *testing.T, q *wire.Msg, text string) *wire.Msg {
	t.Helper()
	rr, err := wire.NewRR(q.Question[0].Name + " 60 IN TXT " + text)
	if err != nil {
		t.Fatal(err)
	}
	m := new(wire.Msg).SetReply(q)
	m.Answer = []wire.RR{rr}
	return m
}

func TestForgedAnswersAreIgnored(t *testing.T) {
	addr := scripted(t, func(q *wire.Msg) [][]byte {
		otherID := txtReply(t, q, "forged")
		otherID.Id++
		otherName := txtReply(t, q, "forged")
		otherName.Question[0].Name = "other.test."
		otherType := txtReply(t, q, "forged")
		otherType.Question[0].Qtype = wire.TypeMX
		isQuery := txtReply(t, q, "forged")
		isQuery.Response = false
		none := txtReply(t, q, "forged")
		none.Question = nil
		genuine := txtReply(t, q, "real")
		genuine.Question[0].Name = "A.Test." // the case of names means nothing
		return [][]byte{nil, []byte("garbage"), packed(t, otherID), packed(t, otherName), packed(t, otherType),
			packed(t, isQuery), packed(t, none), packed(t, genuine)}
	})
	got, err := dnstest.Resolver(t, addr).TXT(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.Records, []string{"real"}) {
		t.Errorf("TXT = %q, %v", got.Records, err)
	}
}

func TestUnaskedRecordsAreIgnored(t *testing.T) {
	addr := scripted(t, func(q *wire.Msg) [][]byte {
		m := txtReply(t, q, "ours")
		for _, s := range []string{"other.test. 60 IN TXT x", "a.test. 60 IN A 192.0.2.1", "a.test. 60 CH TXT x"} {
			rr, err := wire.NewRR(s)
			if err != nil {
				t.Error(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		return [][]byte{packed(t, m)}
	})
	got, err := dnstest.Resolver(t, addr).TXT(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.Records, []string{"ours"}) {
		t.Errorf("TXT = %q, %v", got.Records, err)
	}
}

func TestServerWithoutEDNS(t *testing.T) {
	addr := scripted(t,
		func(q *wire.Msg) [][]byte {
			if q.IsEdns0() == nil {
				t.Error("the first question is without EDNS")
			}
			return [][]byte{packed(t, &wire.Msg{MsgHdr: wire.MsgHdr{Id: q.Id, Response: true, Rcode: wire.RcodeFormatError}})}
		},
		func(q *wire.Msg) [][]byte {
			if q.IsEdns0() != nil {
				t.Error("the second question has EDNS again")
			}
			return [][]byte{packed(t, txtReply(t, q, "old"))}
		})
	got, err := dnstest.Resolver(t, addr).TXT(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.Records, []string{"old"}) {
		t.Errorf("TXT = %q, %v", got.Records, err)
	}
}

func TestMalformedIsTemporary(t *testing.T) {
	for name, spoil := range map[string]func(m *wire.Msg, b []byte) []byte{
		"cut off":      func(_ *wire.Msg, b []byte) []byte { return b[:len(b)-2] },
		"refused":      func(m *wire.Msg, _ []byte) []byte { m.Rcode = wire.RcodeRefused; return packed(t, m) },
		"unknown code": func(m *wire.Msg, _ []byte) []byte { m.Rcode = 14; return packed(t, m) },
		"empty record": func(m *wire.Msg, _ []byte) []byte {
			m.Answer = []wire.RR{&wire.RFC3597{Hdr: wire.RR_Header{Name: "a.test.", Rrtype: wire.TypeTXT, Class: wire.ClassINET, Ttl: 60}}}
			return packed(t, m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr := scripted(t, func(q *wire.Msg) [][]byte {
				m := txtReply(t, q, "text")
				return [][]byte{spoil(m, packed(t, m))}
			})
			if got, err := dnstest.Resolver(t, addr).TXT(t.Context(), "a.test"); !errors.Is(err, dns.ErrTemporary) {
				t.Errorf("TXT = %q, %v", got.Records, err)
			}
		})
	}
}

func TestAbsenceWithoutSOAIsKeptForASecond(t *testing.T) {
	denied := func(q *wire.Msg) [][]byte {
		m := new(wire.Msg).SetReply(q)
		m.Rcode = wire.RcodeNameError
		return [][]byte{packed(t, m)}
	}
	addr := scripted(t, denied, func(q *wire.Msg) [][]byte { return [][]byte{packed(t, txtReply(t, q, "new"))} })
	now := &clock{now: time.Unix(1e9, 0)}
	r := newResolver(t, dns.Config{Server: addr, Now: now.Now})
	for _, at := range []time.Duration{0, 999 * time.Millisecond} {
		now.Advance(at)
		if _, err := r.TXT(t.Context(), "a.test"); !errors.Is(err, dns.ErrNotFound) {
			t.Errorf("after %v: %v", at, err)
		}
	}
	now.Advance(time.Millisecond)
	if _, err := r.TXT(t.Context(), "a.test"); err != nil {
		t.Errorf("then: %v", err)
	}
}
