// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"container/list"
	"crypto/sha256"
	"time"
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
	maxSubjects   int           // maximum number of subjects

	bySubject map[subject]*list.Element
	recent    list.List // of *passwords, most recently used first
}

// cacheEntry holds the passwords of one subject.
type cacheEntry struct {
	subject
	next      int // index of the oldest, which the next one replaces
	passwords []cachedPassword
}

type cachedPassword struct {
	fingerprint
	expires time.Time
}

func (m *resultCache) has(s subject, f fingerprint, now time.Time) bool {
	e := m.bySubject[s]
	if e == nil {
		return false
	}
	m.recent.MoveToFront(e)
	for _, p := range e.Value.(*cacheEntry).passwords {
		if p.fingerprint == f && now.Before(p.expires) {
			return true
		}
	}
	return false
}

func (m *resultCache) add(s subject, f fingerprint, now time.Time) {
	m.expire(now)
	e := m.bySubject[s]
	if e == nil {
		if m.bySubject == nil {
			m.bySubject = map[subject]*list.Element{}
		}
		if len(m.bySubject) >= max(m.maxSubjects, 1) {
			m.forget(m.recent.Back().Value.(*cacheEntry).subject)
		}
		e = m.recent.PushFront(&cacheEntry{subject: s})
		m.bySubject[s] = e
	}
	p, fresh := e.Value.(*cacheEntry), cachedPassword{f, now.Add(m.ttl)}
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
	for e := m.recent.Back(); e != nil; e = m.recent.Back() {
		p := e.Value.(*cacheEntry)
		for _, s := range p.passwords {
			if now.Before(s.expires) {
				return
			}
		}
		m.forget(p.subject)
	}
}

func (m *resultCache) forget(s subject) {
	if e := m.bySubject[s]; e != nil {
		m.recent.Remove(e)
		delete(m.bySubject, s)
	}
}

func (m *resultCache) clear() {
	clear(m.bySubject)
	m.recent.Init()
}
