// SPDX-License-Identifier: Apache-2.0

package route

import "net/netip"

// special are ranges inside what is otherwise public that no mail host can be
// at, or that lead somewhere else than they look (RFC 6890 and its registries).
var special = parsePrefixes(
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // RFC 1918
	"100.64.0.0/10",   // shared by carriers, RFC 6598
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local; the metadata services of clouds
	"172.16.0.0/12",   // RFC 1918
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays, RFC 7526
	"192.168.0.0/16",  // RFC 1918
	"198.18.0.0/15",   // benchmarks, RFC 2544
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast
	"2001::/23",       // protocol assignments, Teredo among them
	"2001:db8::/32",   // documentation
	"3fff::/20",       // documentation, RFC 9637
)

// Ranges of IPv6: what is assigned to hosts of the Internet, and what carries
// an IPv4 address inside.
var (
	global = netip.MustParsePrefix("2000::/3")
	sixto4 = netip.MustParsePrefix("2002::/16")
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
)

func parsePrefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParsePrefix(s)
	}
	return list
}

// Public reports whether an address is one that a stranger's DNS may lead us
// to: a unicast address of the Internet. IPv4 addresses inside IPv6 ones are
// judged as such.
func Public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return Public(netip.AddrFrom4([4]byte(b[12:16])))
		case sixto4.Contains(a):
			return Public(netip.AddrFrom4([4]byte(b[2:6])))
		case !global.Contains(a):
			return false
		}
	}
	return a.IsValid() && !within(special, a)
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
