// SPDX-License-Identifier: Apache-2.0

// Package ratelimit has the limits per client network that all listeners share: rates, connections
// and failed logins. Rates and connections are counted in bounded memory: when it is full, the
// least recently seen network is dropped. Failed logins are counted in the database, for all nodes.
package ratelimit

import "net/netip"

// Network returns the network that counts as one client: an IPv4 address, or the /64 from which an
// IPv6 host may pick its addresses. An IPv4-mapped IPv6 address counts as the IPv4 address; zones
// are ignored.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // fails only for the zero Addr, whose zero Prefix is one client too
	return p
}

// Networks returns Network, and the wider network that a customer of an access provider may have:
// an IPv6 /48, whose /64s cost nothing, or an IPv4 /24.
func Networks(ip netip.Addr) []netip.Prefix {
	narrow := Network(ip)
	bits := 24
	if narrow.Addr().Is6() {
		bits = 48
	}
	wide, _ := narrow.Addr().Prefix(bits)
	return []netip.Prefix{narrow, wide}
}

// Networks is like the function Networks, but returns none for an exempt client.
func (l *LoginLimiter) Networks(ip netip.Addr) []netip.Prefix {
	if l.Exempt != nil && l.Exempt(ip.Unmap()) {
		return nil
	}
	return Networks(ip)
}
