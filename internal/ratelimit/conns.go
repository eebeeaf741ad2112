// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"net/netip"
	"sync"
)

// siteFactor is the limit of an IPv6 /48 as a multiple of PerNetwork: one customer may have a /48,
// with 65,536 networks.
const siteFactor = 4

// ConnLimiter limits the open connections of a listener, in total and per network.
type ConnLimiter struct {
	Total      int                   // maximum of concurrent connections; 0: no limit
	PerNetwork int                   // maximum of concurrent connections from one network; 0: no limit
	Exempt     func(netip.Addr) bool // clients to which PerNetwork does not apply; may be nil

	mu     sync.Mutex
	total  int
	counts map[netip.Prefix]int // networks with connections, so at most twice total
}

// Acquire counts a new connection, unless a limit is reached. The caller must call release when the
// connection ends; further calls do nothing.
func (c *ConnLimiter) Acquire(ip netip.Addr) (release func(), ok bool) {
	networks := Networks(ip)
	if networks[0].Addr().Is4() {
		networks = networks[:1]
	}
	friend := c.Exempt != nil && c.Exempt(ip.Unmap())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Total > 0 && c.total >= c.Total {
		return nil, false
	}
	for i, network := range networks {
		if c.PerNetwork > 0 && !friend && c.counts[network] >= []int{c.PerNetwork, siteFactor * c.PerNetwork}[i] {
			return nil, false
		}
	}
	if c.counts == nil {
		c.counts = make(map[netip.Prefix]int)
	}
	c.total++
	for _, network := range networks {
		c.counts[network]++
	}
	return sync.OnceFunc(func() { c.release(networks) }), true
}

// Count returns the number of connections.
func (c *ConnLimiter) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

func (c *ConnLimiter) release(networks []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	for _, network := range networks {
		if c.counts[network]--; c.counts[network] == 0 {
			delete(c.counts, network)
		}
	}
}
