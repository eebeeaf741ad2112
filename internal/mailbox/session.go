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
	sessionsAtOnce = 200 // rows in one commit
	staleAtOnce    = 500
)

var (
	noteSession = db.SQL(`INSERT INTO mailbox_session (id, mailbox, tenure, protocol, address, app_password, program, since)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO UPDATE SET tenure = excluded.tenure, program = excluded.program`)
	endSession   = db.SQL(`DELETE FROM mailbox_session WHERE id = $1`)
	listSessions = db.Paged(`SELECT id, protocol, address, app_password, program, since FROM mailbox_session
		WHERE EXISTS (SELECT 1 FROM tenure WHERE tenure.id = mailbox_session.tenure AND expires_at > {now}) AND {page mailbox = $1}`)
	// With the tenure, as a row may be taken on by the next one of its node meanwhile.
	staleSessions = db.SQL(`DELETE FROM mailbox_session WHERE (id, tenure) IN (SELECT id, tenure FROM mailbox_session AS s
		WHERE s.tenure < $1 AND NOT EXISTS (SELECT 1 FROM tenure WHERE tenure.id = s.tenure AND expires_at > {now}) ORDER BY s.tenure, s.id LIMIT $2)`)
	noSessions = db.SQL(`DELETE FROM mailbox_session WHERE mailbox = $1`)
)

// sessions are the connections of this node. What is new about them is written
// every few seconds: to sign in costs nothing more, and what came and went in
// between was never there.
type sessions struct {
	mu     sync.Mutex
	open   map[db.ID]*openSession
	news   map[db.ID]bool // of open, those to be written
	over   []db.ID        // that were written, and have ended
	tenure db.ID          // that the rows carry
}

type openSession struct {
	Session
	mailbox db.ID
	written bool
}

// Opened notes a connection that has signed in, and returns what Named and
// Closed are to be told; 0 if the node keeps no list.
func (m *Mailboxes) Opened(box Mailbox, p Protocol, from netip.Addr) db.ID {
	if m.Node == nil {
		return 0
	}
	s := &openSession{mailbox: box.ID, Session: Session{
		ID: m.db.NewID(), Protocol: p, Address: from.Unmap().String(), AppPassword: box.appName, Since: m.now().UTC(),
	}}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	m.sessions.open[s.ID], m.sessions.news[s.ID] = s, true
	return s.ID
}

// Named notes what the client of a session calls itself, in valid UTF-8.
func (m *Mailboxes) Named(id db.ID, program string) {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if s := m.sessions.open[id]; s != nil && s.Program != program {
		s.Program, m.sessions.news[id] = program, true
	}
}

// Closed notes that a session has ended.
func (m *Mailboxes) Closed(id db.ID) {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if s := m.sessions.open[id]; s != nil && s.written {
		m.sessions.over = append(m.sessions.over, id)
	}
	delete(m.sessions.open, id)
	delete(m.sessions.news, id)
}

// take returns what is to be written. After a tenure was lost all is, by the
// new one.
func (s *sessions) take(tenure db.ID) (news []openSession, over []db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenure != tenure {
		s.tenure = tenure
		for id := range s.open {
			s.news[id] = true
		}
	}
	for id := range s.news {
		s.open[id].written = true // or nearly; who closes it has it deleted
		news = append(news, *s.open[id])
	}
	clear(s.news)
	over, s.over = s.over, nil
	return news, over
}

// untake takes back what could not be written.
func (s *sessions) untake(news []openSession, over []db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range news {
		if s.open[one.ID] != nil {
			s.news[one.ID] = true
		}
	}
	s.over = append(s.over, over...)
}

// noteSessions writes what is not written yet about this node's sessions.
// m.notes.writing is held.
func (m *Mailboxes) noteSessions(ctx context.Context) error {
	if m.Node == nil {
		return nil
	}
	tenure, _ := m.Node.Tenure()
	news, over := m.sessions.take(tenure)
	for len(news) > 0 || len(over) > 0 {
		some, ended := news[:min(len(news), sessionsAtOnce)], over[:min(len(over), sessionsAtOnce)]
		err := m.db.Tx(ctx, func(tx *db.Tx) error {
			for _, s := range some {
				if _, err := tx.Exec(ctx, noteSession.With(s.ID, s.mailbox, tenure, string(s.Protocol), s.Address, s.AppPassword, s.Program, db.Micros(s.Since))); err != nil {
					return err
				}
			}
			for _, id := range ended {
				if _, err := tx.Exec(ctx, endSession.With(id)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			m.sessions.untake(news, over)
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
	if err := m.Note(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listSessions, page, func(r db.Row) (s Session, err error) {
		var protocol string
		var since int64
		err = r.Scan(&s.ID, &protocol, &s.Address, &s.AppPassword, &s.Program, &since)
		s.Protocol, s.Since = Protocol(protocol), db.Time(since)
		return s, err
	}, mailbox)
}

// dropSessions deletes those that nodes which ended have left.
func (m *Mailboxes) dropSessions(ctx context.Context) error {
	for before := m.db.NewID(); ; {
		n, err := m.db.Exec(ctx, staleSessions.With(before, staleAtOnce))
		if err != nil || n < staleAtOnce {
			return err
		}
	}
}
