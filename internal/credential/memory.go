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

// memory holds passwords that were found right, or wrong. It is bounded: of each
// subject it keeps the latest, of all subjects those that were asked for last.
type memory struct {
	ttl  time.Duration // how long a password is kept, from when it was verified
	each int           // passwords of a subject
	max  int           // subjects

	of     map[subject]*list.Element
	recent list.List // of *passwords, most recently used first
}

// passwords are those of one subject.
type passwords struct {
	subject
	next int // where the next one goes, over the oldest
	seen []seenPassword
}

type seenPassword struct {
	fingerprint
	until time.Time
}

func (m *memory) has(s subject, f fingerprint, now time.Time) bool {
	e := m.of[s]
	if e == nil {
		return false
	}
	m.recent.MoveToFront(e)
	for _, p := range e.Value.(*passwords).seen {
		if p.fingerprint == f && now.Before(p.until) {
			return true
		}
	}
	return false
}

func (m *memory) add(s subject, f fingerprint, now time.Time) {
	m.expire(now)
	e := m.of[s]
	if e == nil {
		if m.of == nil {
			m.of = map[subject]*list.Element{}
		}
		if len(m.of) >= max(m.max, 1) {
			m.forget(m.recent.Back().Value.(*passwords).subject)
		}
		e = m.recent.PushFront(&passwords{subject: s})
		m.of[s] = e
	}
	p, fresh := e.Value.(*passwords), seenPassword{f, now.Add(m.ttl)}
	for i := range p.seen {
		if p.seen[i].fingerprint == f {
			p.seen[i] = fresh
			return
		}
	}
	if len(p.seen) < m.each {
		p.seen = append(p.seen, fresh)
		return
	}
	p.seen[p.next] = fresh
	p.next = (p.next + 1) % m.each
}

// expire drops the subjects that were not asked for since their passwords
// expired.
func (m *memory) expire(now time.Time) {
	for e := m.recent.Back(); e != nil; e = m.recent.Back() {
		p := e.Value.(*passwords)
		for _, s := range p.seen {
			if now.Before(s.until) {
				return
			}
		}
		m.forget(p.subject)
	}
}

func (m *memory) forget(s subject) {
	if e := m.of[s]; e != nil {
		m.recent.Remove(e)
		delete(m.of, s)
	}
}

func (m *memory) clear() {
	clear(m.of)
	m.recent.Init()
}
