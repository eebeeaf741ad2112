// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"net/netip"
	"strings"

	wire "github.com/miekg/dns"
)

// localTTL is the TTL of local answers, in seconds.
const localTTL = 3600

// localZones are the reverse zones of networks that no public server knows: the local host, private
// networks, and those for documentation (RFC 6303 §4, RFC 7793).
var localZones = reverseZones()

func reverseZones() map[string]bool {
	zones := map[string]bool{}
	for _, name := range []string{"0", "10", "127", "254.169", "168.192", "2.0.192", "100.51.198", "113.0.203", "255.255.255.255"} {
		zones[name+".in-addr.arpa."] = true
	}
	for n := 16; n < 32; n++ {
		zones[fmt.Sprintf("%d.172.in-addr.arpa.", n)] = true
	}
	for n := 64; n < 128; n++ {
		zones[fmt.Sprintf("%d.100.in-addr.arpa.", n)] = true
	}
	for _, name := range []string{"d.f", "8.e.f", "9.e.f", "a.e.f", "b.e.f", "8.b.d.0.1.0.0.2"} {
		zones[name+".ip6.arpa."] = true
	}
	for _, ip := range []netip.Addr{netip.IPv6Unspecified(), netip.IPv6Loopback()} {
		name, _ := wire.ReverseAddr(ip.String()) // it is an address
		zones[name] = true
	}
	return zones
}

// localAnswer answers questions that no outside server can answer. These are names under localhost,
// which are this host, reserved names that don't exist (RFC 6761 §6.2 to 6.4, RFC 7686), and
// localZones.
func localAnswer(q question) (answer, bool) {
	a := answer{canonical: q.name, reason: ErrNotFound}
	name := strings.TrimSuffix(q.name, ".")
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "localhost":
		h := wire.RR_Header{Name: q.name, Rrtype: q.qtype, Class: wire.ClassINET, Ttl: localTTL}
		switch q.qtype {
		case wire.TypeA:
			a.records, a.reason = []wire.RR{&wire.A{Hdr: h, A: []byte{127, 0, 0, 1}}}, nil
		case wire.TypeAAAA:
			a.records, a.reason = []wire.RR{&wire.AAAA{Hdr: h, AAAA: netip.IPv6Loopback().AsSlice()}}, nil
		default:
			a.reason = ErrNoData
		}
		return a, true
	case "invalid", "test", "onion": // not local and home.arpa, where many companies have their smart host
		return a, true
	case "arpa":
		for name = q.name; name != ""; _, name, _ = strings.Cut(name, ".") {
			if localZones[name] {
				return a, true
			}
		}
	}
	return answer{}, false
}
