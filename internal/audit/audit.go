// SPDX-License-Identifier: Apache-2.0

// Package audit writes the audit log of an account: who changed what, and who read mail of others.
// No other package writes it.
//
// A change is recorded in two steps: Begin writes the entry before the change, Done completes it.
// So there is no change without an entry, even after a crash: an entry that stays pending says that
// the outcome is unknown. If the entry can't be written, nothing is changed.
//
// Entries hold no secrets: names, addresses and ids, and no values of fields.
package audit

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Kinds of actor.
const (
	ActorUser      = "user"     // user of the dashboard
	ActorAPIKey    = "api_key"  // program with an API key
	ActorMailbox   = "mailbox"  // mailbox owner in the dashboard
	ActorOperator  = "operator" // operator of the service, at the command line
	ActorAnonymous = "nobody"   // unauthenticated client
)

// States of an entry.
const (
	StatePending = "begun" // in progress, or outcome unknown
	StateDone    = "done"
	StateFailed  = "failed" // the change may have been made in part
)

// Actor is the originator of an action.
type Actor struct {
	Kind string
	ID   db.ID      // id of the user, key or mailbox; 0 for none
	Name string     // name at that time: an address, or the name of a key
	IP   netip.Addr // client's address; the zero Addr for none
}

// Entry is an entry of the audit log: an action in an account.
type Entry struct {
	ID          db.ID
	Account     db.ID
	Actor       Actor
	Action      string // stable name: the id of an API operation, or a route of the dashboard
	Object      string // id of the changed or read object; "" for none
	Description string // one sentence
	State       string
	At          time.Time
}

// Log is the audit log of all accounts.
type Log struct {
	DB  *db.DB
	Now func() time.Time
}

const (
	maxDescription = 500 // bytes, as the next two
	maxName        = 320
	maxID          = 200
)

const entryColumns = `id, account, person, actor_email, summary, address, created_at, actor, action, object_id, state`

var (
	insertQuery = db.SQL(`INSERT INTO dashboard_audit (` + entryColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`)
	// insertLimitedQuery adds an entry, unless there is a recent equal one, or there are too many
	// recent ones for the action and object.
	insertLimitedQuery = db.SQL(`INSERT INTO dashboard_audit (` + entryColumns + `)
		SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS BIGINT),
			CAST($8 AS TEXT), CAST($9 AS TEXT), CAST($10 AS TEXT), CAST($11 AS TEXT)
		WHERE (SELECT COUNT(*) FROM dashboard_audit WHERE account = $2 AND id >= $12 AND action = $9 AND object_id = $10
			AND ($13 = 0 OR actor = $8 AND person = $3 AND summary = $5 AND address = $6)) < $14`)
	completeQuery = db.SQL(`UPDATE dashboard_audit SET state = $2, summary = $3, object_id = $4 WHERE id = $1`)
	deleteQuery   = db.SQL(`DELETE FROM dashboard_audit WHERE id = $1`)
	listQuery     = db.PagedSQL(`SELECT ` + entryColumns + ` FROM dashboard_audit
		WHERE {page account = $1}`)
	pruneQuery = db.SQL(`DELETE FROM dashboard_audit WHERE id IN (SELECT id FROM dashboard_audit WHERE created_at < $1 ORDER BY created_at LIMIT $2)`)
)

func (l *Log) args(e *Entry) []any {
	if e.ID == 0 {
		e.ID = l.DB.NewID()
	}
	from := ""
	if e.Actor.IP.IsValid() {
		from = e.Actor.IP.Unmap().String()
	}
	return []any{e.ID, e.Account, e.Actor.ID, db.CleanText(e.Actor.Name, maxName), db.CleanText(e.Description, maxDescription), from, db.Micros(l.Now()),
		e.Actor.Kind, db.CleanText(e.Action, maxID), db.CleanText(e.Object, maxID), e.State}
}

// Write records a completed action.
func (l *Log) Write(ctx context.Context, e Entry) error {
	e.State = StateDone
	return l.DB.Run(ctx, insertQuery.With(l.args(&e)...))
}

// WriteForCustomer records an operator's completed action in the log of the customer's account.
func (l *Log) WriteForCustomer(ctx context.Context, customer db.ID, action, description string) error {
	return l.Write(context.WithoutCancel(ctx), Entry{
		Account: customer, Actor: Actor{Kind: ActorOperator, Name: "operator"}, Action: action, Object: customer.String(), Description: description,
	})
}

// WriteTx is Write in the transaction that makes the change: both are committed, or neither.
func (l *Log) WriteTx(ctx context.Context, tx *db.Tx, e Entry) error {
	e.State = StateDone
	return tx.Run(ctx, insertQuery.With(l.args(&e)...))
}

// RecordRead records that an actor reads mail, before it is shown. Reads of the same object by the
// same actor within an hour make one entry.
func (l *Log) RecordRead(ctx context.Context, e Entry) error {
	const together = time.Hour
	e.State = StateDone
	return l.DB.Run(ctx, insertLimitedQuery.With(append(l.args(&e), db.MinIDAt(l.Now().Add(-together)), 1, 1)...))
}

// RecordDenied records a rejected attempt, for example a wrong password. It records at most 20 an
// hour for an action and object, so that nobody can flood an account's log from outside.
func (l *Log) RecordDenied(ctx context.Context, e Entry) error {
	const span, most = time.Hour, 20
	e.State = StateFailed
	return l.DB.Run(ctx, insertLimitedQuery.With(append(l.args(&e), db.MinIDAt(l.Now().Add(-span)), 0, most)...))
}

// PendingEntry is the entry of a change that is in progress.
type PendingEntry struct {
	log   *Log
	entry Entry
}

// Begin records that a change is about to be made. If it returns an error, the caller must not make
// the change.
func (l *Log) Begin(ctx context.Context, e Entry) (*PendingEntry, error) {
	e.State = StatePending
	if _, err := l.DB.Exec(ctx, insertQuery.With(l.args(&e)...)); err != nil {
		return nil, err
	}
	return &PendingEntry{l, e}, nil
}

// Done records that the change was made. what and object, unless "", replace the less exact values
// of Begin. It ignores the end of ctx, as the change is already made. It may be called on nil.
func (p *PendingEntry) Done(ctx context.Context, what, object string) error {
	return p.finish(ctx, StateDone, what, object)
}

// Fail records that the change failed, and may have been made in part.
func (p *PendingEntry) Fail(ctx context.Context) error { return p.finish(ctx, StateFailed, "", "") }

func (p *PendingEntry) finish(ctx context.Context, state, what, object string) error {
	if p == nil {
		return nil
	}
	if what == "" {
		what = p.entry.Description
	}
	if object == "" {
		object = p.entry.Object
	}
	_, err := p.log.DB.Exec(context.WithoutCancel(ctx), completeQuery.With(p.entry.ID, state, db.CleanText(what, maxDescription), db.CleanText(object, maxID)))
	return err
}

// Discard deletes the entry, as nothing was changed.
func (p *PendingEntry) Discard(ctx context.Context) error {
	if p == nil {
		return nil
	}
	_, err := p.log.DB.Exec(context.WithoutCancel(ctx), deleteQuery.With(p.entry.ID))
	return err
}

// Abort completes the entry of a change that ended with an error: as failed if a part may be done,
// that is if partial is true or the error is an internal one. Otherwise it discards the entry.
func (p *PendingEntry) Abort(ctx context.Context, err error, partial bool) error {
	if partial || fault.KindOf(err) == fault.Internal {
		return p.Fail(ctx)
	}
	return p.Discard(ctx)
}

// RunCommand makes a change for an operator's command. It writes the entry to the account's log
// first: if that fails, it changes nothing. action is the command's name, object is the changed
// object, and what describes the change in a sentence.
func (l *Log) RunCommand(ctx context.Context, account db.ID, action, object, what string, do func() error) error {
	p, err := l.Begin(ctx, Entry{Account: account, Actor: Actor{Kind: ActorOperator, Name: "command line"}, Action: action, Object: object, Description: what})
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return errors.Join(err, p.Abort(ctx, err, false))
	}
	return p.Done(ctx, "", "")
}

// List returns a page of the entries of an account, newest first.
func (l *Log) List(ctx context.Context, account db.ID, page db.Page) ([]Entry, bool, error) {
	return db.ReadPage(ctx, l.DB, listQuery, page, func(r db.Row) (e Entry, err error) {
		var from string
		err = r.Scan(&e.ID, &e.Account, &e.Actor.ID, &e.Actor.Name, &e.Description, &from, db.TimeScanner(&e.At), &e.Actor.Kind, &e.Action, &e.Object, &e.State)
		e.Actor.IP, _ = netip.ParseAddr(from)
		return e, err
	}, account)
}

// Prune deletes at most limit entries older than before, and returns how many. It is for a
// retention.Task.
func (l *Log) Prune(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := l.DB.Exec(ctx, pruneQuery.With(db.Micros(before), limit))
	return int(deleted), err
}
