// SPDX-License-Identifier: Apache-2.0

package mailauth

import "sync"

const (
	maxCachedKeys = 1000
	// maxCachedRecord is larger than the record of a 4096-bit RSA key.
	maxCachedRecord = 1 << 10
)

// keyCache caches parsed keys by the text of their record. The DNS answer is still decisive; the
// cache saves only the parsing. The zero value is empty.
type keyCache struct {
	mu   sync.Mutex
	keys map[keyCacheKey]publicKey
}

type keyCacheKey struct{ txt, algorithm string }

func (c *keyCache) get(txt, algorithm string) (publicKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.keys[keyCacheKey{txt, algorithm}]
	return k, ok
}

func (c *keyCache) put(txt, algorithm string, k publicKey) {
	if len(txt) > maxCachedRecord {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil || len(c.keys) >= maxCachedKeys {
		c.keys = map[keyCacheKey]publicKey{}
	}
	c.keys[keyCacheKey{txt, algorithm}] = k
}
