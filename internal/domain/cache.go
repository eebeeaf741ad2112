// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// cacheTTL is how long a look-up is cached, in case the notification of a change on another node is
// lost.
const cacheTTL = 5 * time.Second

// maxCached limits the number of cached entries of one kind, and so the memory that mail to made-up
// names can take.
const maxCached = 8192

// cacheEntry is the result of a look-up, or the error that it returns each time.
type cacheEntry[T any] struct {
	value     T
	err       error
	expiresAt time.Time
}

// lookupCache caches look-ups: the current generation and the previous one, of at most the same
// size. The zero value is ready to use.
type lookupCache[K comparable, V any] struct {
	mu         sync.RWMutex
	current    map[K]V
	previous   map[K]V
	clearCount uint64
}

// get returns the cached value, and a mark for put.
func (m *lookupCache[K, V]) get(k K) (v V, mark uint64, ok bool) {
	m.mu.RLock()
	mark = m.clearCount
	if v, ok = m.current[k]; !ok {
		v, ok = m.previous[k]
	}
	m.mu.RUnlock()
	return v, mark, ok
}

// put caches v, unless the cache was cleared since the mark: the result of a look-up before a
// change must not outlive it.
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

// lookUp returns a cached result, or loads it. It also caches that something is missing or not
// allowed, but no other error.
func lookUp[K comparable, V any](c *lookupCache[K, cacheEntry[V]], k K, now time.Time, load func() (V, error)) (V, error) {
	e, mark, ok := c.get(k)
	if ok && now.Before(e.expiresAt) {
		return e.value, e.err
	}
	v, err := load()
	if err == nil || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		c.put(k, cacheEntry[V]{v, err, now.Add(cacheTTL)}, mark)
	}
	return v, err
}
