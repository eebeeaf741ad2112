// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"net/netip"
	"sync"
)

// siteFactor is how many times PerNetwork an IPv6 /48 may have: one customer may
// have it, with 65,536 networks.
const siteFactor = 4

// ConnLimiter counts the open connections of a door, in total and per network.
type ConnLimiter struct {
	Total      int                   // connections at once; 0: no limit
	PerNetwork int                   // of these from one network; 0: no limit
	Exempt     func(netip.Addr) bool // whom PerNetwork does not apply to; may be nil

	mu     sync.Mutex
	total  int
	counts map[netip.Prefix]int // those with connections, so never more than twice total
}

// Acquire counts a connection in, unless a limit is reached. The caller calls
// release when the connection ends; calling it again does nothing.
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
