// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"sync"
	"time"
)

// cacheTTL is how long a look-up is answered from memory, should the signal
// of a change on another node be lost.
const cacheTTL = 5 * time.Second

// maxCacheBytes bounds how much of one kind is remembered, so that mail to made-up
// names costs no more memory than that.
const maxCached = 8192

// cacheEntry is a look-up's result, or the error that it ends with each time.
type cacheEntry[T any] struct {
	value     T
	err       error
	expiresAt time.Time
}

// lookupCache remembers look-ups: the latest, and of those before at most as many
// again. The zero value is ready to use.
type lookupCache[K comparable, V any] struct {
	mu         sync.RWMutex
	current    map[K]V
	previous   map[K]V
	clearCount uint64
}

// get returns what is remembered, and a mark for put.
func (m *lookupCache[K, V]) get(k K) (v V, mark uint64, ok bool) {
	m.mu.RLock()
	mark = m.clearCount
	if v, ok = m.current[k]; !ok {
		v, ok = m.previous[k]
	}
	m.mu.RUnlock()
	return v, mark, ok
}

// put remembers v, unless the memo was cleared since the mark: what was
// looked up before a change must not outlive it.
func (m *lookupCache[K, V]) put(k K, v V, mark uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clearCount != mark {
		return
	}
	if len(m.current) >= maxCached/2 {
		m.previous, m.current = m.current, nil
	}
	if m.current == nil {
		m.current = make(map[K]V)
	}
	m.current[k] = v
}

func (m *lookupCache[K, V]) clear() {
	m.mu.Lock()
	m.current, m.previous = nil, nil
	m.clearCount++
	m.mu.Unlock()
}
