// SPDX-License-Identifier: Apache-2.0

// Package throttle holds the limits per client network that all listeners share:
// how often, how many connections, and how many wrong passwords. The first two
// are in memory and bounded: when it is full, the network that was not seen for
// the longest time is forgotten. Failed logins are in the database, for all nodes.
package throttle

import (
	"container/list"
	"net/netip"
)

// Network returns what counts as one client: an IPv4 address, or the /64 that
// an IPv6 host may pick its addresses from. An IPv4 address in IPv6 form is
// the IPv4 address; zones are ignored.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // fails only for the zero Addr, whose zero Prefix is one client too
	return p
}

// recent is a map of at most max entries that drops the longest unused.
type recent[K comparable, V any] struct {
	max   int
	index map[K]*list.Element
	order list.List // of *entry[K, V], most recently used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// find returns the value of a key, nil if it has none.
func (r *recent[K, V]) find(key K) *V {
	e := r.index[key]
	if e == nil {
		return nil
	}
	r.order.MoveToFront(e)
	return &e.Value.(*entry[K, V]).value
}

// get returns the value of a key, a zero one if it had none.
func (r *recent[K, V]) get(key K) (value *V, fresh bool) {
	if v := r.find(key); v != nil {
		return v, false
	}
	if r.index == nil {
		r.index = make(map[K]*list.Element)
	}
	if r.order.Len() >= r.max {
		if oldest := r.order.Back(); oldest != nil {
			r.order.Remove(oldest)
			delete(r.index, oldest.Value.(*entry[K, V]).key)
		}
	}
	e := &entry[K, V]{key: key}
	r.index[key] = r.order.PushFront(e)
	return &e.value, true
}
