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
	AppPassword string // its name; "" for the mailbox's own password
	Program     string // client name (RFC 2971); "" if unknown
	Since       time.Time
}

const (
	sessionBatchSize = 200 // rows in one commit
	staleBatchSize   = 500
)

var (
	upsertSessionQuery = db.SQL(`INSERT INTO mailbox_session (id, mailbox, lease, protocol, address, app_password, program, since)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO UPDATE SET lease = excluded.lease, program = excluded.program`)
	endSessionQuery   = db.SQL(`DELETE FROM mailbox_session WHERE id = $1`)
	listSessionsQuery = db.PagedSQL(`SELECT id, protocol, address, app_password, program, since FROM mailbox_session
		WHERE EXISTS (SELECT 1 FROM lease WHERE lease.id = mailbox_session.lease AND expires_at > {now}) AND {page mailbox = $1}`)
	// The lease is part of the condition, because the next lease of the same node may take over a
	// row meanwhile.
	deleteStaleSessionsQuery = db.SQL(`DELETE FROM mailbox_session WHERE (id, lease) IN (SELECT id, lease FROM mailbox_session AS s
		WHERE s.lease < $1 AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = s.lease AND expires_at > {now}) ORDER BY s.lease, s.id LIMIT $2)`)
	deleteSessionsQuery = db.SQL(`DELETE FROM mailbox_session WHERE mailbox = $1`)
)

// openSessions are the connections of this node. Changes are written every few seconds, so that
// signing in costs no write; a session that begins and ends in between is never written.
type openSessions struct {
	mu     sync.Mutex
	byID   map[db.ID]*openSession
	dirty  map[db.ID]bool // open sessions to write
	closed []db.ID        // ended sessions whose rows exist
	lease  db.ID          // lease in the written rows
}

type openSession struct {
	Session
	mailbox db.ID
	written bool
}

// OpenSession records a connection that has signed in. It returns the id for SetSessionProgram and
// CloseSession, or 0 if the node records no sessions.
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

// SetSessionProgram records the name of the client program, in valid UTF-8.
func (m *Mailboxes) SetSessionProgram(id db.ID, program string) {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if s := m.sessions.byID[id]; s != nil && s.Program != program {
		s.Program, m.sessions.dirty[id] = program, true
	}
}

// CloseSession records that a session has ended.
func (m *Mailboxes) CloseSession(id db.ID) {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if s := m.sessions.byID[id]; s != nil && s.written {
		m.sessions.closed = append(m.sessions.closed, id)
	}
	delete(m.sessions.byID, id)
	delete(m.sessions.dirty, id)
}

// takePending returns the sessions to write and those to delete. With a new lease it returns all
// sessions.
func (s *openSessions) takePending(leaseID db.ID) (news []openSession, over []db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != leaseID {
		s.lease = leaseID
		for id := range s.byID {
			s.dirty[id] = true
		}
	}
	for id := range s.dirty {
		s.byID[id].written = true // set before the write, so that CloseSession deletes the row
		news = append(news, *s.byID[id])
	}
	clear(s.dirty)
	over, s.closed = s.closed, nil
	return news, over
}

// restorePending takes back changes that could not be written.
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

// flushSessions writes pending changes of this node's sessions. The caller holds signInLog.flushMu.
func (m *Mailboxes) flushSessions(ctx context.Context) error {
	if m.Node == nil {
		return nil
	}
	leaseID, _ := m.Node.Lease()
	news, over := m.sessions.takePending(leaseID)
	for len(news) > 0 || len(over) > 0 {
		some, ended := news[:min(len(news), sessionBatchSize)], over[:min(len(over), sessionBatchSize)]
		var write []db.Statement
		for _, s := range some {
			write = append(write, upsertSessionQuery.With(s.ID, s.mailbox, leaseID, string(s.Protocol), s.Address, s.AppPassword, s.Program, db.Micros(s.Since)))
		}
		for _, id := range ended {
			write = append(write, endSessionQuery.With(id))
		}
		if err := m.db.Run(ctx, write...); err != nil {
			m.sessions.restorePending(news, over)
			return err
		}
		news, over = news[len(some):], over[len(ended):]
	}
	return nil
}

// Sessions lists the connections that are signed in to a mailbox of the account, newest first.
// Those of the last seconds on other nodes may be missing.
func (m *Mailboxes) Sessions(ctx context.Context, account, mailbox db.ID, page db.Page) ([]Session, bool, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return nil, false, err
	}
	if err := m.Flush(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listSessionsQuery, page, func(r db.Row) (s Session, err error) {
		err = r.Scan(&s.ID, &s.Protocol, &s.Address, &s.AppPassword, &s.Program, db.TimeScanner(&s.Since))
		return s, err
	}, mailbox)
}

// deleteStaleSessions deletes the sessions of nodes that have ended.
func (m *Mailboxes) deleteStaleSessions(ctx context.Context) error {
	for before := m.db.NewID(); ; {
		n, err := m.db.Exec(ctx, deleteStaleSessionsQuery.With(before, staleBatchSize))
		if err != nil || n < staleBatchSize {
			return err
		}
	}
}
