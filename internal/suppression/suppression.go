// SPDX-License-Identifier: Apache-2.0

// Package suppression manages, per account, the addresses that its API mail is not sent to: those
// that bounced permanently, complained, unsubscribed, or were added manually. It doesn't apply to
// mail that mailboxes submit.
//
// Addresses are compared by address.Key, which folds the case of the local part and includes its
// plus-tag, so a+x@ differs from a@.
package suppression

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/secret"
)

// Reason is why an address is on the list.
type Reason string

// The reasons. ReasonUnsubscribe stops only mail that offers to unsubscribe; the others stop all
// mail.
const (
	ReasonBounce      Reason = "bounce"
	ReasonComplaint   Reason = "complaint"
	ReasonUnsubscribe Reason = "unsubscribe"
	ReasonManual      Reason = "manual"
)

// Reasons lists all reasons.
var Reasons = [...]Reason{ReasonBounce, ReasonComplaint, ReasonUnsubscribe, ReasonManual}

// The scopes of an entry.
const (
	scopeAll            = "all"
	scopeUnsubscribable = "unsubscribable"
)

func (r Reason) scope() string {
	if r == ReasonUnsubscribe {
		return scopeUnsubscribable
	}
	return scopeAll
}

// maxDiagnostic is the maximum stored length of a diagnostic, in octets.
const maxDiagnostic = 2 << 10

// Entry is an address on the list of an account.
type Entry struct {
	ID         db.ID
	Account    db.ID
	Address    string // as address.Key
	Reason     Reason
	Message    db.ID // message that caused the entry; 0 for none
	Delivery   int   // index of its delivery
	Diagnostic string
	Simulated  bool // for a simulator address: it suppresses nothing
	CreatedAt  time.Time
}

// List manages the suppression lists of all accounts.
type List struct {
	DB  *db.DB
	Key *secret.Key // seals the links that the service hosts
	// BaseURL is the base of these links, without a trailing slash, such as
	// https://mail.example.net.
	BaseURL string
	Now     func() time.Time
}

// maxAddressesPerQuery is how many addresses one query can look up.
const maxAddressesPerQuery = 50

var (
	blockedOneQuery = db.SQL(`SELECT address, reason FROM suppression
		WHERE account = $1 AND address = $3 AND scope IN ('all', $2) AND NOT simulated`)
	blockedManyQuery = db.SQL(`SELECT address, reason FROM suppression
		WHERE account = $1 AND scope IN ('all', $2) AND NOT simulated AND address IN (
			$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27,
			$28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52)`)
)

// Check looks up which addresses API mail must not be sent to.
type Check struct {
	// Blocked are the suppressed addresses, by address.Key, with the reason. It is set when the
	// result is read.
	Blocked map[string]Reason

	statements []db.Statement
	simulated  []string // simulator addresses that count as listed
}

// NewCheck returns a check of addresses of an account. unsubscribable means that the mail offers to
// unsubscribe; then recipients who unsubscribed count too. It takes one query for up to 50
// addresses, and none for simulator addresses.
func (l *List) NewCheck(account db.ID, addresses []address.Address, unsubscribable bool) *Check {
	q := &Check{}
	scope := scopeAll
	if unsubscribable {
		scope = scopeUnsubscribable
	}
	asked := make([]any, 0, len(addresses))
	for _, a := range addresses {
		if !IsSimulator(a) {
			asked = append(asked, a.Key())
		} else if SimulatedBehavior(a) == BehaviorSuppressed {
			q.simulated = append(q.simulated, a.Key())
		}
	}
	for some := range slices.Chunk(asked, maxAddressesPerQuery) {
		args := append([]any{account, scope}, some...)
		if len(some) == 1 {
			q.statements = append(q.statements, blockedOneQuery.With(args...))
			continue
		}
		for len(args) < maxAddressesPerQuery+2 {
			args = append(args, args[2])
		}
		q.statements = append(q.statements, blockedManyQuery.With(args...))
	}
	return q
}

func (q *Check) reset() {
	q.Blocked = nil
	for _, key := range q.simulated {
		q.addBlocked(key, ReasonBounce)
	}
}

func (q *Check) addBlocked(key string, r Reason) {
	if q.Blocked == nil {
		q.Blocked = map[string]Reason{}
	}
	if r != ReasonUnsubscribe || q.Blocked[key] == "" { // a reason that stops all mail takes precedence
		q.Blocked[key] = r
	}
}

func (q *Check) scanRow(r db.Row) error {
	var key string
	var reason Reason
	err := r.Scan(&key, (*string)(&reason))
	q.addBlocked(key, reason)
	return err
}

// AddStatements adds the look-up to the Guard of a mutation. Blocked is valid in its Apply, and
// after the commit.
func (q *Check) AddStatements(b *db.Batch) {
	q.reset()
	for _, s := range q.statements {
		b.Queue(s).Each(q.scanRow)
	}
}

// Blocked runs a check of addresses immediately and returns its result.
func (l *List) Blocked(ctx context.Context, account db.ID, addresses []address.Address, unsubscribable bool) (map[string]Reason, error) {
	q := l.NewCheck(account, addresses, unsubscribable)
	q.reset()
	for _, s := range q.statements {
		if err := l.DB.Each(ctx, s, q.scanRow); err != nil {
			return nil, err
		}
	}
	return q.Blocked, nil
}

var (
	addQuery = db.SQL(`INSERT INTO suppression (id, account, address, scope, reason, message, n, diagnostic, simulated, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (account, address, scope) DO NOTHING`)
	addReturningQuery = db.SQL(`INSERT INTO suppression (id, account, address, scope, reason, message, n, diagnostic, simulated, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (account, address, scope) DO NOTHING RETURNING id`)
)

// AddStatement returns the statement that adds an address to its account's list, for use in the
// caller's transaction. It changes one row, or none if the address is already listed; then the
// first reason stays. ok is false for addresses that are never listed: invalid ones, and simulator
// addresses except for a bounce of bounced@ and a complaint of complained@. AddStatement sets the entry's id, and
// its time unless given.
func (l *List) AddStatement(e Entry) (s db.Statement, ok bool) { return l.insertStatement(addQuery, e) }

func (l *List) insertStatement(q *db.Query, e Entry) (s db.Statement, ok bool) {
	a, err := address.Parse(e.Address)
	if err != nil {
		return s, false
	}
	if e.Simulated = IsSimulator(a); e.Simulated && e.Reason != simulatedReason(a) {
		return s, false
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = l.Now()
	}
	e.Diagnostic = db.CleanText(e.Diagnostic, maxDiagnostic)
	return q.With(l.DB.NewID(), e.Account, a.Key(), e.Reason.scope(), string(e.Reason), e.Message, e.Delivery, e.Diagnostic, e.Simulated,
		db.Micros(e.CreatedAt)), true
}
