// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"container/list"
	"sync"
	"time"
)

// maxCachedSize is the size in octets above which an answer is not cached.
const maxCachedSize = 8 << 10

// cache caches answers until they expire. If it is full, it drops the least recently used answer.
type cache struct {
	mu       sync.Mutex
	entries  map[question]*list.Element
	order    *list.List // of entry, the most recently used in front
	capacity int

	maxTTL, maxNegativeTTL time.Duration
	now                    func() time.Time
}

type entry struct {
	question question
	answer   answer
}

func newCache(c Config, now func() time.Time) *cache {
	k := &cache{
		entries: make(map[question]*list.Element), order: list.New(), now: now,
		capacity: c.CacheEntries, maxTTL: c.MaxTTL, maxNegativeTTL: c.MaxNegativeTTL,
	}
	if k.capacity <= 0 {
		k.capacity = 4096
	}
	if k.maxTTL <= 0 {
		k.maxTTL = time.Hour
	}
	if k.maxNegativeTTL <= 0 {
		k.maxNegativeTTL = 5 * time.Minute
	}
	return k
}

// capTTL limits a TTL to the maximum of the cache.
func (c *cache) capTTL(ttl time.Duration, negative bool) time.Duration {
	if negative {
		return min(ttl, c.maxNegativeTTL)
	}
	return min(ttl, c.maxTTL)
}

func (c *cache) get(q question) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[q]
	if e == nil {
		return answer{}, false
	}
	a := e.Value.(entry).answer
	if !c.now().Before(a.expires) {
		c.remove(e)
		return answer{}, false
	}
	c.order.MoveToFront(e)
	return a, true
}

// put caches an answer in place of an older one, which it removes even if the new one can't be
// cached.
func (c *cache) put(q question, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[q]; e != nil {
		c.remove(e)
	}
	if a.size > maxCachedSize || !c.now().Before(a.expires) {
		return
	}
	if c.order.Len() >= c.capacity {
		c.remove(c.order.Back())
	}
	c.entries[q] = c.order.PushFront(entry{q, a})
}

func (c *cache) remove(e *list.Element) {
	c.order.Remove(e)
	delete(c.entries, e.Value.(entry).question)
}
