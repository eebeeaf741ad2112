// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"container/list"
	"context"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
)

// maxIdleMessages is the maximum of loaded messages that no attempt is using. Each may hold 64 KiB
// of a small message's bytes.
const maxIdleMessages = 256

// messageCache keeps messages loaded and signed while their deliveries are leased.
type messageCache struct {
	prepare func(ctx context.Context, message db.ID) (*OutboundMessage, error)

	mu   sync.Mutex
	byID map[db.ID]*cacheEntry
	idle list.List // of *cacheEntry: loaded and unused, least recently used first
}

type cacheEntry struct {
	refs    int // leased deliveries
	users   int // transactions in progress
	mail    *OutboundMessage
	loading chan struct{} // closed when a load has ended; nil if there is none
	idle    *list.Element
}

func newMessageCache(prepare func(context.Context, db.ID) (*OutboundMessage, error)) *messageCache {
	return &messageCache{prepare: prepare, byID: map[db.ID]*cacheEntry{}}
}

// retain records that a delivery of the message is leased.
func (m *messageCache) retain(id db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil {
		e = &cacheEntry{}
		m.byID[id] = e
	}
	e.refs++
}

// unretain reverses retain. The last call removes the message from the cache.
func (m *messageCache) unretain(id db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e.refs--; e.refs > 0 {
		return
	}
	m.removeIdle(e)
	delete(m.byID, id)
}

func (m *messageCache) removeIdle(e *cacheEntry) {
	if e.idle != nil {
		m.idle.Remove(e.idle)
		e.idle = nil
	}
}

// acquire returns the message, loaded once for all concurrent callers. After success the caller
// must call release.
func (m *messageCache) acquire(ctx context.Context, id db.ID) (*OutboundMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	for e.mail == nil && e.loading != nil {
		loading := e.loading
		m.mu.Unlock()
		select {
		case <-loading:
			m.mu.Lock()
		case <-ctx.Done():
			m.mu.Lock()
			return nil, ctx.Err()
		}
	}
	if e.mail == nil {
		e.loading = make(chan struct{})
		m.mu.Unlock()
		mail, err := m.prepare(ctx, id)
		m.mu.Lock()
		close(e.loading)
		e.loading = nil
		if err != nil {
			return nil, err
		}
		e.mail = mail
	}
	m.removeIdle(e)
	e.users++
	return e.mail, nil
}

func (m *messageCache) release(id db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil {
		return
	}
	if e.users--; e.users > 0 || e.mail == nil {
		return
	}
	e.idle = m.idle.PushBack(e)
	if m.idle.Len() > maxIdleMessages {
		old := m.idle.Front().Value.(*cacheEntry)
		m.removeIdle(old)
		old.mail = nil
	}
}

// info returns the event data of a message if it is loaded.
func (m *messageCache) info(id db.ID) (MessageInfo, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil && e.mail != nil {
		return e.mail.MessageInfo, true
	}
	return MessageInfo{}, false
}
