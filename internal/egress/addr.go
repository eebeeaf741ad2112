// SPDX-License-Identifier: Apache-2.0

// Package egress controls connections to hosts that untrusted parties name: customers, or the DNS
// of others. It decides which addresses may be dialled, and dials exactly the addresses that it has
// checked.
package egress

import (
	"math/rand/v2"
	"net/netip"
)

// specialRanges are ranges within public address space where no host can be, or that lead elsewhere
// than they seem to (RFC 6890 and its registries).
var specialRanges = parsePrefixes(
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

// IPv6 ranges: addresses assigned to Internet hosts, and those that embed an IPv4 address.
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	sixToFour     = netip.MustParsePrefix("2002::/16")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

func parsePrefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParsePrefix(s)
	}
	return list
}

// IsPublic reports whether an untrusted party's DNS may lead us to an address: it must be a unicast
// address of the Internet. IPv4 addresses embedded in IPv6 addresses are checked as IPv4.
func IsPublic(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	if a = EmbeddedIPv4(a); a.Is6() && !globalUnicast.Contains(a) {
		return false
	}
	return a.IsValid() && !InNetworks(a, specialRanges)
}

// EmbeddedIPv4 returns the IPv4 address that an IPv6 address embeds, else the address itself.
func EmbeddedIPv4(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return netip.AddrFrom4([4]byte(b[12:16]))
		case sixToFour.Contains(a):
			return netip.AddrFrom4([4]byte(b[2:6]))
		}
	}
	return a
}

// InNetworks reports whether an address is in one of the networks. An IPv4-mapped IPv6 address is
// checked as IPv4.
func InNetworks(a netip.Addr, list []netip.Prefix) bool {
	a = a.Unmap()
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// IsAllowed reports whether an address is public, or in a network that the operator allows.
func IsAllowed(a netip.Addr, allow []netip.Prefix) bool {
	return IsPublic(a) || InNetworks(a, allow)
}

// Interleave shuffles the addresses of each family and alternates between the families, IPv6 first,
// so that a family that does not work here costs only one attempt.
func Interleave(addrs []netip.Addr) []netip.Addr {
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	var six, four []netip.Addr
	for _, a := range addrs {
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(six), len(four)) {
		if i < len(six) {
			mixed = append(mixed, six[i])
		}
		if i < len(four) {
			mixed = append(mixed, four[i])
		}
	}
	return mixed
}
