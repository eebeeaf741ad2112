// SPDX-License-Identifier: Apache-2.0

// Package lru has a map that drops its least recently used entries.
package lru

import "container/list"

// Map is a map of at most Max entries. It drops the least recently used one. It is not safe for
// concurrent use.
type Map[K comparable, V any] struct {
	Max   int // 0: no limit
	index map[K]*list.Element
	order list.List // of *entry[K, V], most recently used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return len(m.index) }

// Peek returns the value of a key, nil if it has none. It doesn't count as a use.
func (m *Map[K, V]) Peek(key K) *V {
	if e := m.index[key]; e != nil {
		return &e.Value.(*entry[K, V]).value
	}
	return nil
}

// Get returns the value of a key, nil if it has none.
func (m *Map[K, V]) Get(key K) *V {
	if e := m.index[key]; e != nil {
		m.order.MoveToFront(e)
	}
	return m.Peek(key)
}

// GetOrCreate returns the value of a key, and adds a zero value if it has none.
func (m *Map[K, V]) GetOrCreate(key K) (value *V, created bool) {
	if v := m.Get(key); v != nil {
		return v, false
	}
	if m.index == nil {
		m.index = map[K]*list.Element{}
	}
	if oldest, _, ok := m.Oldest(); ok && m.Max > 0 && len(m.index) >= m.Max {
		m.Delete(oldest)
	}
	e := &entry[K, V]{key: key}
	m.index[key] = m.order.PushFront(e)
	return &e.value, true
}

// Put sets the value of a key.
func (m *Map[K, V]) Put(key K, value V) {
	v, _ := m.GetOrCreate(key)
	*v = value
}

// Oldest returns the least recently used entry; ok is false if there is none.
func (m *Map[K, V]) Oldest() (key K, value *V, ok bool) {
	last := m.order.Back()
	if last == nil {
		return key, nil, false
	}
	e := last.Value.(*entry[K, V])
	return e.key, &e.value, true
}

// Delete removes the entry of a key, if there is one.
func (m *Map[K, V]) Delete(key K) {
	if e := m.index[key]; e != nil {
		m.order.Remove(e)
		delete(m.index, key)
	}
}

// Clear removes all entries.
func (m *Map[K, V]) Clear() {
	clear(m.index)
	m.order.Init()
}
