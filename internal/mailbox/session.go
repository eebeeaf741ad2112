// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Session is a connection that is signed in to a mailbox.
type Session struct {
	ID          db.ID
	Protocol    Protocol
	Address     string // of the client
	AppPassword string // its name; "" for the mailbox's own
	Program     string // what the client calls itself (RFC 2971); "" if it doesn't say
	Since       time.Time
}

const (
	sessionBatchSize = 200 // rows in one commit
	staleBatchSize   = 500
)

var (
	upsertSessionQuery = db.SQL(`INSERT INTO mailbox_session (id, mailbox, tenure, protocol, address, app_password, program, since)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO UPDATE SET tenure = excluded.tenure, program = excluded.program`)
	endSessionQuery   = db.SQL(`DELETE FROM mailbox_session WHERE id = $1`)
	listSessionsQuery = db.PagedSQL(`SELECT id, protocol, address, app_password, program, since FROM mailbox_session
		WHERE EXISTS (SELECT 1 FROM tenure WHERE tenure.id = mailbox_session.tenure AND expires_at > {now}) AND {page mailbox = $1}`)
	// With the tenure, as a row may be taken on by the next one of its node meanwhile.
	deleteStaleSessionsQuery = db.SQL(`DELETE FROM mailbox_session WHERE (id, tenure) IN (SELECT id, tenure FROM mailbox_session AS s
		WHERE s.tenure < $1 AND NOT EXISTS (SELECT 1 FROM tenure WHERE tenure.id = s.tenure AND expires_at > {now}) ORDER BY s.tenure, s.id LIMIT $2)`)
	deleteSessionsQuery = db.SQL(`DELETE FROM mailbox_session WHERE mailbox = $1`)
)

// openSessions are the connections of this node. What is new about them is written
// every few seconds: to sign in costs nothing more, and what came and went in
// between was never there.
type openSessions struct {
	mu     sync.Mutex
	byID   map[db.ID]*openSession
	dirty  map[db.ID]bool // of open, those to be written
	closed []db.ID        // that were written, and have ended
	lease  db.ID          // that the rows carry
}

type openSession struct {
	Session
	mailbox db.ID
	written bool
}

// OpenSession notes a connection that has signed in, and returns what Named and
// Closed are to be told; 0 if the node keeps no list.
func (m *Mailboxes) OpenSession(box Mailbox, p Protocol, from netip.Addr) db.ID {
	if m.Node == nil {
		return 0
	}
	s := &openSession{mailbox: box.ID, Session: Session{
		ID: m.db.NewID(), Protocol: p, Address: from.Unmap().String(), AppPassword: box.appPasswordName, Since: m.now().UTC(),
	}}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	m.sessions.byID[s.ID], m.sessions.dirty[s.ID] = s, true
	return s.ID
}

// SetSessionProgram notes what the client of a session calls itself, in valid UTF-8.
func (m *Mailboxes) SetSessionProgram(id db.ID, program string) {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if s := m.sessions.byID[id]; s != nil && s.Program != program {
		s.Program, m.sessions.dirty[id] = program, true
	}
}

// CloseSession notes that a session has ended.
func (m *Mailboxes) CloseSession(id db.ID) {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if s := m.sessions.byID[id]; s != nil && s.written {
		m.sessions.closed = append(m.sessions.closed, id)
	}
	delete(m.sessions.byID, id)
	delete(m.sessions.dirty, id)
}

// takePending returns what is to be written. After a tenure was lost all is, by the
// new one.
func (s *openSessions) takePending(tenure db.ID) (news []openSession, over []db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != tenure {
		s.lease = tenure
		for id := range s.byID {
			s.dirty[id] = true
		}
	}
	for id := range s.dirty {
		s.byID[id].written = true // or nearly; who closes it has it deleted
		news = append(news, *s.byID[id])
	}
	clear(s.dirty)
	over, s.closed = s.closed, nil
	return news, over
}

// restorePending takes back what could not be written.
func (s *openSessions) restorePending(news []openSession, over []db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range news {
		if s.byID[one.ID] != nil {
			s.dirty[one.ID] = true
		}
	}
	s.closed = append(s.closed, over...)
}

// flushSessions writes what is not written yet about this node's sessions.
// m.notes.writing is held.
func (m *Mailboxes) flushSessions(ctx context.Context) error {
	if m.Node == nil {
		return nil
	}
	tenure, _ := m.Node.Lease()
	news, over := m.sessions.takePending(tenure)
	for len(news) > 0 || len(over) > 0 {
		some, ended := news[:min(len(news), sessionBatchSize)], over[:min(len(over), sessionBatchSize)]
		err := m.db.Tx(ctx, func(tx *db.Tx) error {
			for _, s := range some {
				if _, err := tx.Exec(ctx, upsertSessionQuery.With(s.ID, s.mailbox, tenure, string(s.Protocol), s.Address, s.AppPassword, s.Program, db.Micros(s.Since))); err != nil {
					return err
				}
			}
			for _, id := range ended {
				if _, err := tx.Exec(ctx, endSessionQuery.With(id)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			m.sessions.restorePending(news, over)
			return err
		}
		news, over = news[len(some):], over[len(ended):]
	}
	return nil
}

// Sessions lists which connections are signed in to a mailbox of the account,
// newest first. What other nodes saw in the last seconds may be missing.
func (m *Mailboxes) Sessions(ctx context.Context, account, mailbox db.ID, page db.Page) ([]Session, bool, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return nil, false, err
	}
	if err := m.Flush(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listSessionsQuery, page, func(r db.Row) (s Session, err error) {
		var protocol string
		var since int64
		err = r.Scan(&s.ID, &protocol, &s.Address, &s.AppPassword, &s.Program, &since)
		s.Protocol, s.Since = Protocol(protocol), db.Time(since)
		return s, err
	}, mailbox)
}

// deleteStaleSessions deletes those that nodes which ended have left.
func (m *Mailboxes) deleteStaleSessions(ctx context.Context) error {
	for before := m.db.NewID(); ; {
		n, err := m.db.Exec(ctx, deleteStaleSessionsQuery.With(before, staleBatchSize))
		if err != nil || n < staleBatchSize {
			return err
		}
	}
}
