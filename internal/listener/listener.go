// SPDX-License-Identifier: Apache-2.0

// Package listener accepts connections and HTTP requests that come through trusted proxies, with
// their client's address, and limits how many one network may have.
package listener

import (
	"net/netip"
	"slices"
)

// Proxies are the networks of trusted proxies: load balancers that speak the PROXY protocol, or
// HTTP proxies.
type Proxies []netip.Prefix

// Contain reports whether an address is one of a trusted proxy.
func (p Proxies) Contain(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(addr.Unmap().WithZone("")) })
}
