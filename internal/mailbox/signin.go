// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/throttle"
)

// SignIn is one attempt to sign in to a mailbox, or several alike.
type SignIn struct {
	ID          db.ID
	Protocol    Protocol
	Address     string // of the client; of failures by IPv6 the network (/64)
	Result      string
	AppPassword string // its name; "" for the mailbox's own
	Times       int64
	FirstAt     time.Time
	LastAt      time.Time
}

// Results of a SignIn.
const (
	SignedIn      = "ok"
	WrongPassword = "wrong_password"
	NoVerifier    = "no_verifier"    // by SCRAM, which is not possible before a log-in without it, or a new password
	WasSuspended  = "suspended"      // with the right password
	WrongProtocol = "wrong_protocol" // with an app password for another one
)

const (
	// KeptSignIns is how many rows of those that succeeded a mailbox keeps, and
	// how many of the others: who guesses does not push the owner's out.
	KeptSignIns = 200
	// SignInLife is how long they are kept at most.
	SignInLife = 90 * 24 * time.Hour

	foldSignIns = time.Hour       // within which what is alike is one row
	noteEvery   = 5 * time.Second // how often they are written
	maxNotes    = 10_000          // rows in memory; what is more is lost
	notesAtOnce = 200             // rows in one commit
)

var (
	noteSignIn = db.SQL(`INSERT INTO sign_in (id, mailbox, protocol, address, result, failed, app_password, times, first_at, last_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (id) DO UPDATE SET times = excluded.times, last_at = excluded.last_at`)
	trimSignIns = db.SQL(`DELETE FROM sign_in WHERE mailbox = $1 AND failed = $2
		AND id <= (SELECT id FROM sign_in WHERE mailbox = $1 AND failed = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)`)
	listSignIns = db.Paged(`SELECT id, protocol, address, result, app_password, times, first_at, last_at
		FROM sign_in WHERE {page mailbox = $1}`)
	pruneSignIns = db.SQL(`DELETE FROM sign_in WHERE id IN (SELECT id FROM sign_in WHERE last_at < $1 ORDER BY last_at LIMIT $2)`)
	noSignIns    = db.SQL(`DELETE FROM sign_in WHERE mailbox = $1`)
)

// notes are what is yet to be written about sign-ins. Writing them is no part
// of signing in, and what a crash loses is no loss.
type notes struct {
	mu      sync.Mutex
	rows    map[noteKey]*note
	ended   []takenNote         // no longer in rows, and to be written once more
	used    map[db.ID]time.Time // app passwords
	writing sync.Mutex
}

type noteKey struct {
	mailbox  db.ID
	protocol Protocol
	address  string
	result   string
	app      string
}

// note is a row, as it is to stand in the database.
type note struct {
	id          db.ID
	times       int64
	first, last time.Time
	dirty       bool
}

// signedIn notes an attempt at a mailbox that is there.
func (m *Mailboxes) signedIn(box Mailbox, p Protocol, from netip.Addr, result string) {
	key := noteKey{box.ID, p, from.Unmap().String(), result, box.appName}
	if result == WrongPassword && from.Unmap().Is6() {
		key.address = throttle.Network(from).String()
	}
	now := m.now().UTC()
	m.notes.mu.Lock()
	defer m.notes.mu.Unlock()
	if result == SignedIn && box.app != 0 {
		m.notes.used[box.app] = now
	}
	n := m.notes.rows[key]
	if n == nil || now.Sub(n.first) >= foldSignIns {
		if len(m.notes.rows)+len(m.notes.ended) >= maxNotes {
			return
		}
		if n != nil && n.dirty {
			m.notes.ended = append(m.notes.ended, takenNote{key, *n})
		}
		n = &note{id: m.db.NewID(), first: now}
		m.notes.rows[key] = n
	}
	n.times, n.last, n.dirty = n.times+1, now, true
}

// takenNote is a row that is being written.
type takenNote struct {
	key noteKey
	note
}

// take returns what is to be written, and forgets what has become old.
func (n *notes) take(now time.Time) (rows []takenNote, used map[db.ID]time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	rows, n.ended = n.ended, nil
	for key, one := range n.rows {
		if one.dirty {
			rows = append(rows, takenNote{key, *one})
			one.dirty = false
		}
		if now.Sub(one.first) >= foldSignIns {
			delete(n.rows, key)
		}
	}
	used, n.used = n.used, map[db.ID]time.Time{}
	return rows, used
}

// Note writes what is not written yet about sign-ins and sessions on this node.
func (m *Mailboxes) Note(ctx context.Context) error {
	m.notes.writing.Lock()
	defer m.notes.writing.Unlock()
	rows, used := m.notes.take(m.now())
	for len(rows) > 0 || len(used) > 0 {
		some := rows[:min(len(rows), notesAtOnce)]
		rows = rows[len(some):]
		err := m.db.Tx(ctx, func(tx *db.Tx) error { return writeNotes(ctx, tx, some, used) })
		if err != nil {
			return err
		}
		used = nil
	}
	return m.noteSessions(ctx)
}

func writeNotes(ctx context.Context, tx *db.Tx, rows []takenNote, used map[db.ID]time.Time) error {
	trim := map[[2]int64]bool{}
	for _, r := range rows {
		failed := int64(0)
		if r.key.result != SignedIn {
			failed = 1
		}
		if _, err := tx.Exec(ctx, noteSignIn.With(r.id, r.key.mailbox, string(r.key.protocol), r.key.address, r.key.result, failed, r.key.app,
			r.times, db.Micros(r.first), db.Micros(r.last))); err != nil {
			return err
		}
		trim[[2]int64{int64(r.key.mailbox), failed}] = true
	}
	for of := range trim {
		if _, err := tx.Exec(ctx, trimSignIns.With(of[0], of[1], KeptSignIns)); err != nil {
			return err
		}
	}
	for app, at := range used {
		if _, err := tx.Exec(ctx, touchApp.With(app, db.Micros(at.Truncate(time.Hour)))); err != nil {
			return err
		}
	}
	return nil
}

// RunNotes writes what is noted about sign-ins and sessions every few seconds until ctx ends,
// and once more then; report is told what went wrong.
func (m *Mailboxes) RunNotes(ctx context.Context, report func(error)) error {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := m.Note(context.WithoutCancel(ctx)); err != nil {
				report(err)
			}
			return nil
		}
		if err := m.Note(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

// SignIns lists who signed in to a mailbox of the account, or tried to, newest
// first. What other nodes saw in the last seconds may be missing.
func (m *Mailboxes) SignIns(ctx context.Context, account, mailbox db.ID, page db.Page) ([]SignIn, bool, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return nil, false, err
	}
	if err := m.Note(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listSignIns, page, func(r db.Row) (s SignIn, err error) {
		var protocol string
		var first, last int64
		err = r.Scan(&s.ID, &protocol, &s.Address, &s.Result, &s.AppPassword, &s.Times, &first, &last)
		s.Protocol, s.FirstAt, s.LastAt = Protocol(protocol), db.Time(first), db.Time(last)
		return s, err
	}, mailbox)
}

// PruneSignIns deletes, in one commit, at most limit rows of sign-ins that were
// last seen before a time, and returns how many; 0: there are no more.
func (m *Mailboxes) PruneSignIns(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := m.db.Exec(ctx, pruneSignIns.With(db.Micros(before), limit))
	return int(deleted), err
}
