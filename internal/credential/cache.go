// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"container/list"
	"crypto/sha256"
	"time"
)

// subject is whose passwords are remembered: a credential, or an address that
// has none.
type subject struct {
	id      int64
	address string // only with id 0
}

// fingerprint stands for a password of a stored hash. It is keyed: a dump of the
// memory offers nothing that is quicker to guess from without the process's key.
type fingerprint [sha256.Size]byte

// resultCache holds passwords that were found right, or wrong. It is bounded: of each
// subject it keeps the latest, of all subjects those that were asked for last.
type resultCache struct {
	ttl           time.Duration // how long a password is kept, from when it was verified
	maxPerSubject int           // passwords of a subject
	maxSubjects   int           // subjects

	bySubject map[subject]*list.Element
	recent    list.List // of *passwords, most recently used first
}

// cacheEntry are those of one subject.
type cacheEntry struct {
	subject
	next      int // where the next one goes, over the oldest
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

// expire drops the subjects that were not asked for since their passwords
// expired.
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
