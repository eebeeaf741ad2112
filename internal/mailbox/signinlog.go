// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// SignIn is one attempt to sign in to a mailbox, or several similar ones.
type SignIn struct {
	ID          db.ID
	Protocol    Protocol
	Address     string // of the client; for IPv6 failures the network (/64)
	Result      string
	AppPassword string // its name; "" for the mailbox's own password
	Times       int64
	FirstAt     time.Time
	LastAt      time.Time
}

// Results of a SignIn.
const (
	ResultOK            = "ok"
	ResultWrongPassword = "wrong_password"
	ResultNoVerifier    = "no_verifier"    // SCRAM needs an earlier login without it, or a new password
	ResultSuspended     = "suspended"      // with the right password
	ResultWrongProtocol = "wrong_protocol" // with an app password for another protocol
)

const (
	// MaxSignIns is the maximum number of rows of a mailbox, for successes and failures each, so
	// that guesses don't displace the owner's sign-ins.
	MaxSignIns = 200
	// SignInRetention is how long rows are stored at most.
	SignInRetention = 90 * 24 * time.Hour

	signInMergeWindow = time.Hour       // similar attempts within it share one row
	flushInterval     = 5 * time.Second // how often rows are written
	maxPendingSignIns = 10_000          // rows in memory; more are dropped
	flushBatchSize    = 200             // rows in one commit
)

var (
	upsertSignInQuery = db.SQL(`INSERT INTO sign_in (id, mailbox, protocol, address, result, failed, app_password, times, first_at, last_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (id) DO UPDATE SET times = excluded.times, last_at = excluded.last_at`)
	trimSignInsQuery = db.SQL(`DELETE FROM sign_in WHERE mailbox = $1 AND failed = $2
		AND id <= (SELECT id FROM sign_in WHERE mailbox = $1 AND failed = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)`)
	listSignInsQuery = db.PagedSQL(`SELECT id, protocol, address, result, app_password, times, first_at, last_at
		FROM sign_in WHERE {page mailbox = $1}`)
	pruneSignInsQuery  = db.SQL(`DELETE FROM sign_in WHERE id IN (SELECT id FROM sign_in WHERE last_at < $1 ORDER BY last_at LIMIT $2)`)
	deleteSignInsQuery = db.SQL(`DELETE FROM sign_in WHERE mailbox = $1`)
)

// signInLog is the set of sign-ins that are not written yet. They are written apart from signing
// in; a crash may lose some.
type signInLog struct {
	mu               sync.Mutex
	rows             map[signInKey]*signInRow
	closed           []pendingSignIn     // removed from rows but not written yet
	usedAppPasswords map[db.ID]time.Time // last use of app passwords
	flushMu          sync.Mutex
}

type signInKey struct {
	mailbox     db.ID
	protocol    Protocol
	address     string
	result      string
	appPassword string
}

// signInRow is a row as stored in the database.
type signInRow struct {
	id          db.ID
	times       int64
	first, last time.Time
	dirty       bool
}

// recordSignIn records an attempt to sign in to an existing mailbox.
func (m *Mailboxes) recordSignIn(box Mailbox, p Protocol, from netip.Addr, result string) {
	key := signInKey{box.ID, p, from.Unmap().String(), result, box.appPasswordName}
	if result == ResultWrongPassword && from.Unmap().Is6() {
		key.address = ratelimit.Network(from).String()
	}
	now := m.now().UTC()
	m.signInLog.mu.Lock()
	defer m.signInLog.mu.Unlock()
	if result == ResultOK && box.appPassword != 0 {
		m.signInLog.usedAppPasswords[box.appPassword] = now
	}
	n := m.signInLog.rows[key]
	if n == nil || now.Sub(n.first) >= signInMergeWindow {
		if len(m.signInLog.rows)+len(m.signInLog.closed) >= maxPendingSignIns {
			return
		}
		if n != nil && n.dirty {
			m.signInLog.closed = append(m.signInLog.closed, pendingSignIn{key, *n})
		}
		n = &signInRow{id: m.db.NewID(), first: now}
		m.signInLog.rows[key] = n
	}
	n.times, n.last, n.dirty = n.times+1, now, true
}

// pendingSignIn is a row to be written.
type pendingSignIn struct {
	key signInKey
	signInRow
}

// takePending returns the rows to write and drops old ones from memory.
func (n *signInLog) takePending(now time.Time) (rows []pendingSignIn, used map[db.ID]time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	rows, n.closed = n.closed, nil
	for key, one := range n.rows {
		if one.dirty {
			rows = append(rows, pendingSignIn{key, *one})
			one.dirty = false
		}
		if now.Sub(one.first) >= signInMergeWindow {
			delete(n.rows, key)
		}
	}
	used, n.usedAppPasswords = n.usedAppPasswords, map[db.ID]time.Time{}
	return rows, used
}

// Flush writes pending sign-ins and sessions of this node.
func (m *Mailboxes) Flush(ctx context.Context) error {
	m.signInLog.flushMu.Lock()
	defer m.signInLog.flushMu.Unlock()
	rows, used := m.signInLog.takePending(m.now())
	for len(rows) > 0 || len(used) > 0 {
		some := rows[:min(len(rows), flushBatchSize)]
		rows = rows[len(some):]
		if err := m.db.Run(ctx, signInStatements(some, used)...); err != nil {
			return err
		}
		used = nil
	}
	return m.flushSessions(ctx)
}

// signInStatements returns the statements that write rows and the last use of app passwords.
func signInStatements(rows []pendingSignIn, used map[db.ID]time.Time) (all []db.Statement) {
	trim := map[[2]int64]bool{}
	for _, r := range rows {
		failed := int64(0)
		if r.key.result != ResultOK {
			failed = 1
		}
		all = append(all, upsertSignInQuery.With(r.id, r.key.mailbox, string(r.key.protocol), r.key.address, r.key.result, failed, r.key.appPassword,
			r.times, db.Micros(r.first), db.Micros(r.last)))
		trim[[2]int64{int64(r.key.mailbox), failed}] = true
	}
	for of := range trim {
		all = append(all, trimSignInsQuery.With(of[0], of[1], MaxSignIns))
	}
	for app, at := range used {
		all = append(all, touchAppPasswordQuery.With(app, db.Micros(at.Truncate(time.Hour))))
	}
	return all
}

// RunFlush writes pending sign-ins and sessions every few seconds until ctx ends, and once more
// then. It passes errors to report.
func (m *Mailboxes) RunFlush(ctx context.Context, report func(error)) error {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := m.Flush(context.WithoutCancel(ctx)); err != nil {
				report(err)
			}
			return nil
		}
		if err := m.Flush(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

// SignIns lists the sign-ins and failed attempts of a mailbox of the account, newest first. Those
// of the last seconds on other nodes may be missing.
func (m *Mailboxes) SignIns(ctx context.Context, account, mailbox db.ID, page db.Page) ([]SignIn, bool, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return nil, false, err
	}
	if err := m.Flush(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listSignInsQuery, page, func(r db.Row) (s SignIn, err error) {
		err = r.Scan(&s.ID, &s.Protocol, &s.Address, &s.Result, &s.AppPassword, &s.Times, db.TimeScanner(&s.FirstAt), db.TimeScanner(&s.LastAt))
		return s, err
	}, mailbox)
}

// PruneSignIns deletes, in one commit, at most limit sign-ins last seen before a time, and returns
// how many; 0 means that there are no more.
func (m *Mailboxes) PruneSignIns(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := m.db.Exec(ctx, pruneSignInsQuery.With(db.Micros(before), limit))
	return int(deleted), err
}
