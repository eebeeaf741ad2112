// SPDX-License-Identifier: Apache-2.0

package route_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/route"
)

func router(t *testing.T, records ...string) (*route.Router, *dnstest.Zone) {
	t.Helper()
	addr, zone := dnstest.Start(t, records...)
	return &route.Router{DNS: dnstest.Resolver(t, addr), HostName: "mail.ours.test"}, zone
}

// hosts shows a plan as "name=address,address name=…".
func hosts(p route.Plan) string {
	var s []string
	for _, h := range p.Hosts {
		var addrs []string
		for _, a := range h.Addrs {
			addrs = append(addrs, a.String())
		}
		s = append(s, h.Name+"="+strings.Join(addrs, ","))
	}
	return strings.Join(s, " ")
}

func TestHosts(t *testing.T) {
	cases := []struct {
		name    string
		records []string
		want    string
	}{
		{"MX in order", []string{
			"d.test. MX 20 b.d.test.", "d.test. MX 10 a.d.test.",
			"a.d.test. A 1.1.1.1", "b.d.test. A 1.1.1.2",
		}, "a.d.test=1.1.1.1:25 b.d.test=1.1.1.2:25"},
		{"IPv6 and IPv4 by turns", []string{
			"d.test. MX 10 a.d.test.", "a.d.test. A 1.1.1.1", "a.d.test. AAAA 2606:4700::1111",
		}, "a.d.test=[2606:4700::1111]:25,1.1.1.1:25"},
		{"implicit MX", []string{"d.test. A 1.1.1.1"}, "d.test=1.1.1.1:25"},
		{"implicit MX over IPv6", []string{"d.test. AAAA 2606:4700::1111"}, "d.test=[2606:4700::1111]:25"},
		{"a host that does not exist", []string{
			"d.test. MX 10 a.d.test.", "d.test. MX 20 b.d.test.", "b.d.test. A 1.1.1.2",
		}, "b.d.test=1.1.1.2:25"},
		{"a host named twice", []string{
			"d.test. MX 10 a.d.test.", "d.test. MX 20 a.d.test.", "a.d.test. A 1.1.1.1",
		}, "a.d.test=1.1.1.1:25"},
		{"a host at a private address", []string{
			"d.test. MX 10 a.d.test.", "d.test. MX 20 b.d.test.", "a.d.test. A 10.0.0.1", "b.d.test. A 1.1.1.2",
		}, "b.d.test=1.1.1.2:25"},
		{"a private address beside a public one", []string{
			"d.test. MX 10 a.d.test.", "a.d.test. A 127.0.0.1", "a.d.test. A 1.1.1.1",
		}, "a.d.test=1.1.1.1:25"},
		{"we are the backup", []string{
			"d.test. MX 10 a.d.test.", "d.test. MX 20 mail.ours.test.", "d.test. MX 20 b.d.test.", "d.test. MX 30 c.d.test.",
			"a.d.test. A 1.1.1.1", "b.d.test. A 1.1.1.2", "c.d.test. A 1.1.1.3", "mail.ours.test. A 1.1.1.9",
		}, "a.d.test=1.1.1.1:25"},
		{"null MX beside a real one", []string{
			"d.test. MX 0 .", "d.test. MX 10 a.d.test.", "a.d.test. A 1.1.1.1",
		}, "a.d.test=1.1.1.1:25"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, _ := router(t, c.records...)
			p, err := r.Hosts(t.Context(), "d.test")
			if err != nil || hosts(p) != c.want || p.Via != "" {
				t.Errorf("got %q, %v; want %q", hosts(p), err, c.want)
			}
		})
	}
}

func TestNoWay(t *testing.T) {
	mx := []string{"d.test. MX 10 a.d.test."}
	cases := []struct {
		name      string
		records   []string
		fail      string // answered by SERVFAIL
		want      string
		permanent bool
		code      int
	}{
		{"NXDOMAIN", nil, "", "5.1.2", true, 550},
		{"null MX", []string{"d.test. MX 0 ."}, "", "5.1.10", true, 556},
		{"neither MX nor address", []string{"d.test. TXT \"hello\""}, "", "5.4.4", true, 550},
		{"SERVFAIL", mx, "d.test", "4.4.3", false, 451},
		{"SERVFAIL of the only host", append(mx, "a.d.test. A 1.1.1.1"), "a.d.test", "4.4.3", false, 451},
		{"hosts that do not exist", mx, "", "4.4.4", false, 451},
		{"private", append(mx, "a.d.test. A 192.168.0.1", "a.d.test. AAAA fd00::1"), "", "4.4.4", false, 451},
		{"loopback", append(mx, "a.d.test. A 127.0.0.1", "a.d.test. AAAA ::1"), "", "4.4.4", false, 451},
		{"implicit MX at a private address", []string{"d.test. A 10.0.0.1"}, "", "4.4.4", false, 451},
		{"our name", []string{"d.test. MX 10 mail.ours.test.", "mail.ours.test. A 1.1.1.9"}, "", "5.4.6", true, 554},
		{"our name without an address", []string{"d.test. MX 10 mail.ours.test."}, "", "5.4.6", true, 554},
		{"our address by another name", append(mx, "a.d.test. A 1.1.1.9", "mail.ours.test. A 1.1.1.9"), "", "5.4.6", true, 554},
		{"our address inside another", append(mx, "a.d.test. AAAA 64:ff9b::101:109", "mail.ours.test. A 1.1.1.9"), "", "5.4.6", true, 554},
		{"our name, and one worse", []string{
			"d.test. MX 10 mail.ours.test.", "d.test. MX 20 b.d.test.", "b.d.test. A 1.1.1.2",
		}, "", "5.4.6", true, 554},
		{"our name among equals", []string{
			"d.test. MX 10 mail.ours.test.", "d.test. MX 10 b.d.test.", "b.d.test. A 1.1.1.2",
		}, "", "5.4.6", true, 554},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, zone := router(t, c.records...)
			if c.fail != "" {
				zone.ServFail(c.fail)
			}
			p, err := r.Hosts(t.Context(), "d.test")
			var why *route.Error
			if !errors.As(err, &why) {
				t.Fatalf("got %q, %v", hosts(p), err)
			}
			if why.Enhanced != c.want || why.Permanent != c.permanent || why.Code != c.code {
				t.Errorf("got %+v", why)
			}
			r.SmartHost = &route.SmartHost{Host: "relay.test"}
			if loops := r.LoopsBack(t.Context(), "d.test"); loops != (c.want == "5.4.6") {
				t.Errorf("it loops: %v", loops)
			}
		})
	}
}

func TestLoopOfADomainHeldHere(t *testing.T) {
	r, _ := router(t, "d.test. MX 10 mail.ours.test.")
	for _, c := range []struct {
		held bool
		err  error
		want string
	}{{false, nil, "5.4.6"}, {true, nil, "4.4.6"}, {false, errors.New("no database"), "4.4.6"}} {
		r.IsClaimed = func(_ context.Context, domain string) (bool, error) {
			if domain != "d.test" {
				t.Errorf("asked about %s", domain)
			}
			return c.held, c.err
		}
		_, err := r.Hosts(t.Context(), "d.test")
		var why *route.Error
		if !errors.As(err, &why) || why.Enhanced != c.want || why.Permanent != (c.want[0] == '5') || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

func TestAllowedAndOwn(t *testing.T) {
	r, _ := router(t, "d.test. MX 10 a.d.test.", "a.d.test. A 127.0.0.1")
	r.AllowNets = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	r.OwnAddrs = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("1.1.1.9")}
	r.Port = 2525
	p, err := r.Hosts(t.Context(), "d.test")
	if err != nil || hosts(p) != "a.d.test=127.0.0.1:2525" {
		t.Errorf("got %q, %v", hosts(p), err)
	}
	r.AllowNets = nil
	if _, err = r.Hosts(t.Context(), "d.test"); !strings.HasPrefix(fmt.Sprint(err), "5.4.6") {
		t.Errorf("got %v", err)
	}
}

// Hosts of equal preference, and addresses of a host, come in random order.
func TestShuffle(t *testing.T) {
	r, _ := router(t, "d.test. MX 10 a.d.test.", "d.test. MX 10 b.d.test.", "d.test. MX 5 first.d.test.",
		"a.d.test. A 1.1.1.1", "b.d.test. A 1.1.1.2", "first.d.test. A 1.1.1.3", "first.d.test. A 1.1.1.4")
	names, addrs := map[string]bool{}, map[string]bool{}
	for range 200 {
		p, err := r.Hosts(t.Context(), "d.test")
		if err != nil || len(p.Hosts) != 3 || p.Hosts[0].Name != "first.d.test" {
			t.Fatalf("got %q, %v", hosts(p), err)
		}
		names[p.Hosts[1].Name] = true
		addrs[p.Hosts[0].Addrs[0].String()] = true
	}
	if len(names) != 2 || len(addrs) != 2 {
		t.Errorf("first were %v, %v", names, addrs)
	}
}

func TestBounds(t *testing.T) {
	var records []string
	for i := range 40 {
		records = append(records, fmt.Sprintf("d.test. MX %d h%d.d.test.", i, i))
		for j := range 12 {
			records = append(records, fmt.Sprintf("h%d.d.test. A 1.1.%d.%d", i, i, j), fmt.Sprintf("h%d.d.test. AAAA 2606:4700::%x:%x", i, i, j))
		}
	}
	r, zone := router(t, records...)
	p, err := r.Hosts(t.Context(), "d.test")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, h := range p.Hosts {
		total += len(h.Addrs)
		if !h.Addrs[0].Addr().Is6() || len(h.Addrs) > 1 && !h.Addrs[1].Addr().Is4() {
			t.Errorf("not both families in front: %v", h.Addrs)
		}
	}
	if total != 20 || p.Hosts[0].Name != "h0.d.test" {
		t.Errorf("%d addresses: %q", total, hosts(p))
	}
	if zone.QueryCount("h9.d.test") == 0 || zone.QueryCount("h10.d.test") != 0 {
		t.Error("more hosts were looked up than are of use")
	}
}

// An error at a host that is not needed does not matter.
func TestOneHostIsEnough(t *testing.T) {
	r, zone := router(t, "d.test. MX 10 a.d.test.", "d.test. MX 20 b.d.test.", "b.d.test. A 1.1.1.2")
	zone.ServFail("a.d.test")
	zone.ServFail("mail.ours.test")
	p, err := r.Hosts(t.Context(), "d.test")
	if err != nil || hosts(p) != "b.d.test=1.1.1.2:25" {
		t.Errorf("got %q, %v", hosts(p), err)
	}
}

func TestHostsEndsWithItsContext(t *testing.T) {
	r, zone := router(t, "d.test. MX 10 a.d.test.")
	zone.Drop("d.test")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Hosts(ctx, "d.test"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
