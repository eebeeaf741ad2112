// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"net/netip"
	"sync"
)

// Conns counts the open connections of a door, in total and per network.
type Conns struct {
	Total      int                   // connections at once; 0: no limit
	PerNetwork int                   // of these from one network; 0: no limit
	Friend     func(netip.Addr) bool // whom PerNetwork does not apply to; may be nil

	mu    sync.Mutex
	total int
	by    map[netip.Prefix]int // those with connections, so never more than total
}

// Acquire counts a connection in, unless a limit is reached. The caller calls
// release when the connection ends; calling it again does nothing.
func (c *Conns) Acquire(ip netip.Addr) (release func(), ok bool) {
	network := Network(ip)
	friend := c.Friend != nil && c.Friend(ip.Unmap())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Total > 0 && c.total >= c.Total {
		return nil, false
	}
	if c.PerNetwork > 0 && !friend && c.by[network] >= c.PerNetwork {
		return nil, false
	}
	if c.by == nil {
		c.by = make(map[netip.Prefix]int)
	}
	c.total++
	c.by[network]++
	return sync.OnceFunc(func() { c.release(network) }), true
}

// Open returns the number of connections.
func (c *Conns) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

func (c *Conns) release(network netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.by[network]--; c.by[network] == 0 {
		delete(c.by, network)
	}
}
