// SPDX-License-Identifier: Apache-2.0

// Package suppression keeps, per account, the addresses that its API mail does
// not go to: those that bounced for good, complained, unsubscribed, or were
// entered by hand. Mail that mailboxes submit is none of its business.
//
// Addresses are compared by address.Key: the case of the local part is folded
// and its plus-tag kept, so a+x@ is not a@.
package suppression

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/secret"
)

// Reason is why an address is on the list.
type Reason string

// The reasons. Unsubscribe stops only mail that offers to unsubscribe; the
// others stop all.
const (
	ReasonBounce      Reason = "bounce"
	ReasonComplaint   Reason = "complaint"
	ReasonUnsubscribe Reason = "unsubscribe"
	ReasonManual      Reason = "manual"
)

// Reasons lists all of them.
var Reasons = [...]Reason{ReasonBounce, ReasonComplaint, ReasonUnsubscribe, ReasonManual}

// EventReason is the reason as events say it.
func (r Reason) EventReason() string {
	if r == ReasonUnsubscribe {
		return "unsubscribed"
	}
	return string(r)
}

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

// maxDiagnostic bounds what is kept of a diagnostic, in octets.
const maxDiagnostic = 2 << 10

// Entry is an address on the list of an account.
type Entry struct {
	ID         db.ID
	Account    db.ID
	Address    string // as address.Key
	Reason     Reason
	Message    db.ID // that led to it; 0 for none
	Delivery   int   // its delivery
	Diagnostic string
	Simulated  bool // of a simulator address: it stops nothing
	CreatedAt  time.Time
}

// List is the suppression lists of all accounts.
type List struct {
	DB  *db.DB
	Key *secret.Key // seals the links that the service hosts
	// BaseURL is where these links lead to, without a slash at its end, such as
	// https://mail.example.net.
	BaseURL string
	Now     func() time.Time
}

// maxAddressesPerQuery is how many addresses one look-up can ask for.
const maxAddressesPerQuery = 50

var (
	blockedOneQuery = db.SQL(`SELECT address, reason FROM suppression
		WHERE account = $1 AND address = $3 AND scope IN ('all', $2) AND NOT simulated`)
	blockedManyQuery = db.SQL(`SELECT address, reason FROM suppression
		WHERE account = $1 AND scope IN ('all', $2) AND NOT simulated AND address IN (
			$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27,
			$28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52)`)
)

// Check asks which of some addresses API mail must not go to.
type Check struct {
	// Blocked are those addresses, by address.Key, and why; filled in by
	// reading what was asked.
	Blocked map[string]Reason

	statements []db.Statement
	simulated  []string // addresses of the simulator that count as listed
}

// NewCheck asks for addresses of an account. unsubscribable says that the mail
// offers to unsubscribe: then those who did so count too. It costs one query for
// up to 50 addresses, and none for simulator addresses.
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
	if r != ReasonUnsubscribe || q.Blocked[key] == "" { // what stops all mail says more
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

// AddStatements asks in the guard of a job: Blocked is right in its apply, and after the
// commit.
func (q *Check) AddStatements(b *db.Batch) {
	q.reset()
	for _, s := range q.statements {
		b.Queue(s).Each(q.scanRow)
	}
}

// Blocked answers an Inquire at once.
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

// AddStatement makes the statement that puts an address on its account's list, for use
// in the caller's transaction: it changes one row, or none if the address is
// there already, with its first reason. ok is false for what never enters the
// list: something that is no address, and simulator addresses, but for a
// bounce of bounced@simulator.test. The entry's id is made, and its time unless
// it is given.
func (l *List) AddStatement(e Entry) (s db.Statement, ok bool) { return l.insertStatement(addQuery, e) }

func (l *List) insertStatement(q *db.Query, e Entry) (s db.Statement, ok bool) {
	a, err := address.Parse(e.Address)
	if err != nil {
		return s, false
	}
	if e.Simulated = IsSimulator(a); e.Simulated && (e.Reason != ReasonBounce || SimulatedBehavior(a) != BehaviorBounced) {
		return s, false
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = l.Now()
	}
	e.Diagnostic = cleanText(e.Diagnostic, maxDiagnostic)
	return q.With(l.DB.NewID(), e.Account, a.Key(), e.Reason.scope(), string(e.Reason), e.Message, e.Delivery, e.Diagnostic, e.Simulated,
		db.Micros(e.CreatedAt)), true
}

// cleanText makes text from outside fit for a TEXT column of both engines.
func cleanText(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
