// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"sync"
	"time"
)

// remember is how long a look-up is answered from memory, should the signal
// of a change on another node be lost.
const remember = 5 * time.Second

// maxMemo bounds how much of one kind is remembered, so that mail to made-up
// names costs no more memory than that.
const maxMemo = 8192

// known is a look-up's result, or the error that it ends with each time.
type known[T any] struct {
	value T
	err   error
	until time.Time
}

// memo remembers look-ups: the latest, and of those before at most as many
// again. The zero value is ready to use.
type memo[K comparable, V any] struct {
	mu      sync.RWMutex
	fresh   map[K]V
	old     map[K]V
	cleared uint64
}

// get returns what is remembered, and a mark for put.
func (m *memo[K, V]) get(k K) (v V, mark uint64, ok bool) {
	m.mu.RLock()
	mark = m.cleared
	if v, ok = m.fresh[k]; !ok {
		v, ok = m.old[k]
	}
	m.mu.RUnlock()
	return v, mark, ok
}

// put remembers v, unless the memo was cleared since the mark: what was
// looked up before a change must not outlive it.
func (m *memo[K, V]) put(k K, v V, mark uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cleared != mark {
		return
	}
	if len(m.fresh) >= maxMemo/2 {
		m.old, m.fresh = m.fresh, nil
	}
	if m.fresh == nil {
		m.fresh = make(map[K]V)
	}
	m.fresh[k] = v
}

func (m *memo[K, V]) clear() {
	m.mu.Lock()
	m.fresh, m.old = nil, nil
	m.cleared++
	m.mu.Unlock()
}
