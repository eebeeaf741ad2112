// SPDX-License-Identifier: Apache-2.0

package mailauth

import "sync"

const (
	maxCachedKeys = 1000
	// maxCachedRecord is more than the record of an RSA key of 4096 bits has.
	maxCachedRecord = 1 << 10
)

// keyCache keeps the keys of records that were read, by their text: what the DNS
// says decides each time, only reading it is saved. The zero value is empty.
type keyCache struct {
	mu  sync.Mutex
	all map[keyText]publicKey
}

type keyText struct{ txt, algorithm string }

func (c *keyCache) get(txt, algorithm string) (publicKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.all[keyText{txt, algorithm}]
	return k, ok
}

func (c *keyCache) put(txt, algorithm string, k publicKey) {
	if len(txt) > maxCachedRecord {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxCachedKeys {
		c.all = map[keyText]publicKey{}
	}
	c.all[keyText{txt, algorithm}] = k
}
