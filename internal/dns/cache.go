// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lru"
)

// maxCachedSize is the size in octets above which an answer is not cached.
const maxCachedSize = 8 << 10

// cache caches answers until they expire. If it is full, it drops the least recently used answer.
type cache struct {
	mu      sync.Mutex
	answers lru.Map[question, answer]

	maxTTL, maxNegativeTTL time.Duration
	now                    func() time.Time
}

func newCache(c Config, now func() time.Time) *cache {
	k := &cache{
		now: now, answers: lru.Map[question, answer]{Max: c.CacheEntries}, maxTTL: c.MaxTTL, maxNegativeTTL: c.MaxNegativeTTL,
	}
	if k.answers.Max <= 0 {
		k.answers.Max = 4096
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
	a := c.answers.Get(q)
	if a == nil {
		return answer{}, false
	}
	if !c.now().Before(a.expires) {
		c.answers.Delete(q)
		return answer{}, false
	}
	return *a, true
}

// put caches an answer in place of an older one, which it removes even if the new one can't be
// cached.
func (c *cache) put(q question, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.size > maxCachedSize || !c.now().Before(a.expires) {
		c.answers.Delete(q)
		return
	}
	c.answers.Put(q, a)
}
