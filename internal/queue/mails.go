// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"container/list"
	"context"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
)

// maxIdleMails bounds the messages kept loaded while no courier has a
// delivery of them; each may hold 64 KiB of a small message's bytes.
const maxIdleMails = 256

// mails keeps a message loaded and signed while deliveries of it are in hand.
type mails struct {
	prepare func(ctx context.Context, message db.ID) (*Mail, error)

	mu   sync.Mutex
	byID map[db.ID]*mailEntry
	idle list.List // of *mailEntry: loaded and not used, the longest unused first
}

type mailEntry struct {
	held    int // deliveries in hand
	used    int // of these, with a courier
	mail    *Mail
	loading chan struct{} // closed when a load has ended; nil if there is none
	idle    *list.Element
}

func newMails(prepare func(context.Context, db.ID) (*Mail, error)) *mails {
	return &mails{prepare: prepare, byID: map[db.ID]*mailEntry{}}
}

// hold notes that a delivery of the message is in hand.
func (m *mails) hold(id db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil {
		e = &mailEntry{}
		m.byID[id] = e
	}
	e.held++
}

// drop is the reverse of hold. The last one forgets the message.
func (m *mails) drop(id db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e.held--; e.held > 0 {
		return
	}
	m.busy(e)
	delete(m.byID, id)
}

func (m *mails) busy(e *mailEntry) {
	if e.idle != nil {
		m.idle.Remove(e.idle)
		e.idle = nil
	}
}

// use returns the message, loaded once however many ask. After success the
// caller calls unuse.
func (m *mails) use(ctx context.Context, id db.ID) (*Mail, error) {
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
	m.busy(e)
	e.used++
	return e.mail, nil
}

func (m *mails) unuse(id db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil {
		return
	}
	if e.used--; e.used > 0 || e.mail == nil {
		return
	}
	e.idle = m.idle.PushBack(e)
	if m.idle.Len() > maxIdleMails {
		old := m.idle.Front().Value.(*mailEntry)
		m.busy(old)
		old.mail = nil
	}
}

// about returns what is known of a message that is loaded.
func (m *mails) about(id db.ID) (About, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil && e.mail != nil {
		return e.mail.About, true
	}
	return About{}, false
}
