// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/doctor"
)

const host = "mail.example.com"

// names returns a check of our name with a DNS server, on a machine with one address.
func names(t *testing.T, server string) doctor.HostDNS {
	t.Helper()
	r, err := dns.New(dns.Config{Server: server, TrustAD: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return doctor.HostDNS{Host: host, DNS: r, MachineAddrs: func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("9.9.9.1"), netip.MustParseAddr("2620:fe::1")}, nil
	}}
}

func TestResolver(t *testing.T) {
	server, zone := dnstest.Start(t, host+". A 9.9.9.1")
	n := names(t, server)
	expect(t, n.CheckResolver, doctor.OK, server+" answers")
	n.TrustDNSSEC = true
	expect(t, n.CheckResolver, doctor.Warning, "does not validate DNSSEC")
	zone.SetAuthentic(".")
	expect(t, n.CheckResolver, doctor.OK, "validates DNSSEC")
	zone.Drop(".")
	expect(t, n.CheckResolver, doctor.Warning, "no answer about the root")
	zone.Drop(host)
	expect(t, n.CheckResolver, doctor.Error, "no answer from "+server)

	zone.ClearFaults(".")
	_, port, err := net.SplitHostPort(server)
	if err != nil {
		t.Fatal(err)
	}
	// The same with an address other than loopback, which anybody could have.
	n = names(t, "0.0.0.0:"+port)
	n.TrustDNSSEC = true
	expect(t, n.CheckResolver, doctor.Warning, "--trust-resolver has no effect")
}

func TestHost(t *testing.T) {
	server, zone := dnstest.Start(t)
	n := names(t, server)
	for _, c := range []struct {
		records []string
		status  doctor.Status
		says    string
	}{
		{nil, doctor.Error, "has no address"},
		{[]string{"TXT x"}, doctor.Error, "has no address"},
		{[]string{"A 9.9.9.1", "AAAA 2620:fe::1"}, doctor.OK, "leads to this machine: 2620:fe::1, 9.9.9.1"},
		{[]string{"A 9.9.9.2"}, doctor.OK, "9.9.9.2 not of this machine, as behind NAT"},
		{[]string{"A 9.9.9.1", "A 127.0.0.1"}, doctor.Warning, "leads also to 127.0.0.1"},
		{[]string{"A 192.168.1.1"}, doctor.Warning, "nobody on the Internet can reach"},
	} {
		zone.Set(host, c.records...)
		expect(t, n.CheckHost, c.status, c.says)
	}
	zone.Drop(host)
	expect(t, n.CheckHost, doctor.Warning, "no answer about "+host)
}

func TestReverse(t *testing.T) {
	server, zone := dnstest.Start(t)
	n := names(t, server)
	expect(t, n.CheckReverse, doctor.Warning, "has no address")
	zone.Set(host, "A 9.9.9.1")
	expect(t, names(t, server).CheckReverse, doctor.Warning, "9.9.9.1 has no reverse name")
	n = names(t, server)
	zone.Set("1.9.9.9.in-addr.arpa", "PTR vps17.hoster.example.")
	expect(t, n.CheckReverse, doctor.Warning, "9.9.9.1 is called vps17.hoster.example")
	zone.Set("1.9.9.9.in-addr.arpa", "PTR "+host+".")
	expect(t, n.CheckReverse, doctor.OK, "is called "+host)
	zone.Drop("1.9.9.9.in-addr.arpa")
	expect(t, n.CheckReverse, doctor.Warning, "no answer about 9.9.9.1")
	n.Relayed = true
	expect(t, n.CheckReverse, doctor.OK, "not needed")
	zone.Set(host, "A 10.0.0.1")
	expect(t, names(t, server).CheckReverse, doctor.OK, "no public address")
}
