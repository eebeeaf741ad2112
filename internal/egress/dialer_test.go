// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func prefixes(list ...string) (p []netip.Prefix) {
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// Addresses returns only those addresses of a host that may be dialled.
func TestAddresses(t *testing.T) {
	addr, zone := dnstest.Start(t,
		"public.test. A 1.1.1.1", "public.test. AAAA 2606:4700::1111",
		"mixed.test. A 1.1.1.1", "mixed.test. A 10.0.0.1", "mixed.test. AAAA ::1",
		"inside.test. A 10.0.0.1", "inside.test. A 192.168.1.1",
		"metadata.test. A 169.254.169.254", "metadata.test. AAAA fd00:ec2::254",
		"mapped.test. AAAA ::ffff:10.0.0.1", "nat64.test. AAAA 64:ff9b::a00:1", "sixto4.test. AAAA 2002:a00:1::1",
		"ours.test. A 9.9.9.9", "ours.test. A 8.8.8.8", "mail.test. A 9.9.9.9",
	)
	zone.ServFail("broken.test")
	d := &egress.Dialer{DNS: dnstest.Resolver(t, addr), HostName: "mail.test", OwnAddrs: []netip.Addr{netip.MustParseAddr("8.8.4.4")}}
	allowing := *d
	allowing.AllowNets = prefixes("10.0.0.0/8", "127.0.0.0/8", "9.9.9.9/32")
	only := allowing
	only.AllowNetsOnly = true
	for _, c := range []struct {
		d    *egress.Dialer
		host string
		want string // in order of their text
	}{
		{d, "public.test", "1.1.1.1 2606:4700::1111"},
		{d, "mixed.test", "1.1.1.1"},
		{d, "inside.test", "refused"},
		{d, "metadata.test", "refused"},
		{d, "mapped.test", "refused"},
		{d, "nat64.test", "refused"},
		{d, "sixto4.test", "refused"},
		{d, "ours.test", "8.8.8.8"},
		{d, "mail.test", "refused"},
		{d, "8.8.4.4", "refused"},
		{d, "::ffff:8.8.4.4", "refused"},
		{d, "64:ff9b::808:404", "refused"},
		{d, "2002:808:404::1", "refused"},
		{d, "127.0.0.1", "refused"},
		{d, "localhost", "refused"},
		{d, "x.LOCALHOST.", "refused"},
		{d, "::1", "refused"},
		{d, "fe80::1%eth0", "refused"},
		{d, "0.0.0.0", "refused"},
		{d, "broken.test", "temporary"},
		{d, "none.test", "none"},
		{&allowing, "inside.test", "10.0.0.1"},
		{&allowing, "mapped.test", "10.0.0.1"},
		{&allowing, "localhost", "127.0.0.1"},
		{&allowing, "ours.test", "8.8.8.8 9.9.9.9"},
		{&only, "public.test", "refused"},
		{&only, "mixed.test", "10.0.0.1"},
	} {
		addrs, err := c.d.Addresses(t.Context(), c.host)
		var got string
		switch {
		case errors.Is(err, egress.ErrNoAllowedAddr):
			got = "refused"
		case errors.Is(err, dns.ErrTemporary):
			got = "temporary"
		case err != nil:
			got = "none"
		default:
			slices.SortFunc(addrs, func(a, b netip.Addr) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
			for _, a := range addrs {
				got += " " + a.String()
			}
			got = got[1:]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.host, got, c.want)
		}
	}
}

// door listens at an address, and counts the connections to it.
func listener(t *testing.T, addr string) (port string, calls *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	calls = &atomic.Int64{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, calls
}

// A name whose addresses change never leads to an address that is not allowed, with any timing.
func TestRebinding(t *testing.T) {
	port, good := listener(t, "127.0.0.1:0")
	_, bad := listener(t, "127.0.0.2:"+port)
	addr, zone := dnstest.Start(t)
	flip := []string{"0 IN A 127.0.0.1", "0 IN A 127.0.0.2"}
	zone.Set("rebind.test", flip[0])
	d := &egress.Dialer{DNS: dnstest.Resolver(t, addr), AllowNets: prefixes("127.0.0.1/32")}
	ctx, stop := context.WithCancel(t.Context())
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			zone.Set("rebind.test", flip[i%2])
		}
	})
	refused := 0
	for dialled := 0; dialled < 50 || refused < 50; {
		c, err := d.Dial(t.Context(), "rebind.test", port)
		switch {
		case errors.Is(err, egress.ErrNoAllowedAddr):
			refused++
		case err != nil:
			t.Fatal(err)
		default:
			dialled++
			if a := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); a != netip.MustParseAddr("127.0.0.1") {
				t.Errorf("dialled %s", a)
			}
			_ = c.Close()
		}
	}
	stop()
	flipping.Wait()
	if good.Load() == 0 || bad.Load() != 0 {
		t.Errorf("%d connections to the good place, %d to the bad one", good.Load(), bad.Load())
	}
}

// An address that does not answer is no reason to give up on the others.
func TestDialNext(t *testing.T) {
	port, _ := listener(t, "127.0.0.3:0")
	addr, _ := dnstest.Start(t, "two.test. A 127.0.0.4", "two.test. A 127.0.0.3")
	d := &egress.Dialer{DNS: dnstest.Resolver(t, addr), AllowNets: prefixes("127.0.0.0/8")}
	for range 10 {
		c, err := d.Dial(t.Context(), "two.test", port)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if _, err := d.Dial(t.Context(), "127.0.0.4", port); err == nil {
		t.Error("connected to nobody")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Dial(ctx, "two.test", port); err == nil {
		t.Error("connected without time")
	}
}
