// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"crypto/sha256"
	"time"

	"github.com/mailstead/mailstead/internal/lru"
)

// subject is the owner of cached passwords: a credential, or an address without one.
type subject struct {
	id      int64
	address string // only with id 0
}

// fingerprint identifies a password for a stored hash. It is keyed, so that without the process's
// key a memory dump doesn't make guessing faster.
type fingerprint [sha256.Size]byte

// resultCache caches passwords that were found right, or wrong. It is bounded: it keeps the latest
// passwords of each subject, and the most recently used subjects.
type resultCache struct {
	ttl           time.Duration // lifetime of a password after its verification
	maxPerSubject int           // maximum number of passwords of a subject
	subjects      lru.Map[subject, subjectPasswords]
}

// subjectPasswords holds the passwords of one subject.
type subjectPasswords struct {
	next      int // index of the oldest, which the next one replaces
	passwords []cachedPassword
}

type cachedPassword struct {
	fingerprint
	expires time.Time
}

func (m *resultCache) has(s subject, f fingerprint, now time.Time) bool {
	e := m.subjects.Get(s)
	if e == nil {
		return false
	}
	for _, p := range e.passwords {
		if p.fingerprint == f && now.Before(p.expires) {
			return true
		}
	}
	return false
}

func (m *resultCache) add(s subject, f fingerprint, now time.Time) {
	m.expire(now)
	p, _ := m.subjects.GetOrCreate(s)
	fresh := cachedPassword{f, now.Add(m.ttl)}
	for i := range p.passwords {
		if p.passwords[i].fingerprint == f {
			p.passwords[i] = fresh
			return
		}
	}
	if len(p.passwords) < m.maxPerSubject {
		p.passwords = append(p.passwords, fresh)
		return
	}
	p.passwords[p.next] = fresh
	p.next = (p.next + 1) % m.maxPerSubject
}

// expire drops the least recently used subjects whose passwords have all expired.
func (m *resultCache) expire(now time.Time) {
	for {
		s, p, ok := m.subjects.Oldest()
		if !ok {
			return
		}
		for _, c := range p.passwords {
			if now.Before(c.expires) {
				return
			}
		}
		m.subjects.Delete(s)
	}
}
