// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"container/list"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// perID is how many passwords of one mailbox are remembered: its own and a
// few for single applications.
const perID = 4

// Cache remembers successful logins for a short time. What it holds is a keyed
// hash with a key of this process only: a dump of its memory offers nothing
// that is quicker to guess from without that key.
type Cache struct {
	TTL time.Duration    // how long a login is remembered, from when it was verified
	Max int              // mailboxes remembered; the longest unused are dropped
	Now func() time.Time // the clock

	hasher *Hasher
	key    [sha256.Size]byte

	mu     sync.Mutex
	byID   map[int64]*list.Element
	recent *list.List // of *logins, most recently used first
}

// logins are what is remembered of one mailbox.
type logins struct {
	id   int64
	next int // where the next one goes, over the oldest
	seen [perID]login
}

type login struct {
	mac   [sha256.Size]byte
	until time.Time
}

// NewCache returns a cache of 5 minutes and 10,000 mailboxes in front of a
// hasher. Change the fields before its first use.
func NewCache(h *Hasher) *Cache {
	c := &Cache{TTL: 5 * time.Minute, Max: 10_000, Now: time.Now,
		hasher: h, byID: make(map[int64]*list.Element), recent: list.New()}
	rand.Read(c.key[:])
	return c
}

// Verify is Hasher.Verify, except that a login which succeeded lately costs
// microseconds. id is the mailbox; generation is a number stored with it that
// grows with each change of password or state, read together with phc: then a
// verification that was under way during a change can't outlive it.
func (c *Cache) Verify(ctx context.Context, id, generation int64, phc, password string) (bool, error) {
	if len(password) > MaxLength {
		return c.hasher.Verify(ctx, phc, password)
	}
	stored, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	mac := c.mac(id, generation, password)
	if c.known(id, mac) {
		return true, nil
	}
	release, err := c.hasher.slot(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	// A client that opens ten connections at once pays for one.
	if c.known(id, mac) {
		return true, nil
	}
	if !stored.matches(password) {
		return false, nil
	}
	c.remember(id, mac)
	return true, nil
}

// Forget drops what is remembered of a mailbox: at a change of password, a
// suspension or a revocation, on every node.
func (c *Cache) Forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		c.recent.Remove(e)
		delete(c.byID, id)
	}
}

// ForgetAll drops everything: when signals from other nodes may have been lost.
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	c.recent.Init()
}

func (c *Cache) mac(id, generation int64, password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, c.key[:])
	var head [16]byte
	binary.BigEndian.PutUint64(head[:8], uint64(id))
	binary.BigEndian.PutUint64(head[8:], uint64(generation))
	h.Write(head[:])
	h.Write([]byte(prepare(password)))
	h.Sum(sum[:0])
	return sum
}

func (c *Cache) known(id int64, mac [sha256.Size]byte) bool {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil {
		return false
	}
	c.recent.MoveToFront(e)
	for _, l := range e.Value.(*logins).seen {
		if hmac.Equal(l.mac[:], mac[:]) && now.Before(l.until) {
			return true
		}
	}
	return false
}

func (c *Cache) remember(id int64, mac [sha256.Size]byte) {
	until := c.Now().Add(c.TTL)
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil {
		if c.recent.Len() >= max(c.Max, 1) {
			oldest := c.recent.Back()
			delete(c.byID, oldest.Value.(*logins).id)
			c.recent.Remove(oldest)
		}
		e = c.recent.PushFront(&logins{id: id})
		c.byID[id] = e
	}
	l := e.Value.(*logins)
	at := l.next
	for i := range l.seen {
		if l.seen[i].mac == mac {
			at = i
		}
	}
	if at == l.next {
		l.next = (l.next + 1) % perID
	}
	l.seen[at] = login{mac: mac, until: until}
}
