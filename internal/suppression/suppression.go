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
	Bounce      Reason = "bounce"
	Complaint   Reason = "complaint"
	Unsubscribe Reason = "unsubscribe"
	Manual      Reason = "manual"
)

// Reasons lists all of them.
var Reasons = [...]Reason{Bounce, Complaint, Unsubscribe, Manual}

// Told is the reason as events say it.
func (r Reason) Told() string {
	if r == Unsubscribe {
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
	if r == Unsubscribe {
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
	N          int   // its delivery
	Diagnostic string
	Simulated  bool // of a simulator address: it stops nothing
	CreatedAt  time.Time
}

// List is the suppression lists of all accounts.
type List struct {
	DB  *db.DB
	Key *secret.Key // seals the links that the service hosts
	// Base is where these links lead to, without a slash at its end, such as
	// https://mail.example.net.
	Base string
	Now  func() time.Time
}

// maxTogether is how many addresses one look-up can ask for.
const maxTogether = 50

var (
	blockedOne = db.SQL(`SELECT address, reason FROM suppression
		WHERE account = $1 AND address = $3 AND scope IN ('all', $2) AND NOT simulated`)
	blockedMany = db.SQL(`SELECT address, reason FROM suppression
		WHERE account = $1 AND scope IN ('all', $2) AND NOT simulated AND address IN (
			$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27,
			$28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52)`)
)

// Inquiry asks which of some addresses API mail must not go to.
type Inquiry struct {
	// Blocked are those addresses, by address.Key, and why; filled in by
	// reading what was asked.
	Blocked map[string]Reason

	asks   []db.Statement
	played []string // addresses of the simulator that count as listed
}

// Inquire asks for addresses of an account. unsubscribable says that the mail
// offers to unsubscribe: then those who did so count too. It costs one query for
// up to 50 addresses, and none for simulator addresses.
func (l *List) Inquire(account db.ID, addresses []address.Address, unsubscribable bool) *Inquiry {
	q := &Inquiry{}
	scope := scopeAll
	if unsubscribable {
		scope = scopeUnsubscribable
	}
	asked := make([]any, 0, len(addresses))
	for _, a := range addresses {
		if !Simulator(a) {
			asked = append(asked, a.Key())
		} else if Plays(a) == PlaysSuppressed {
			q.played = append(q.played, a.Key())
		}
	}
	for some := range slices.Chunk(asked, maxTogether) {
		args := append([]any{account, scope}, some...)
		if len(some) == 1 {
			q.asks = append(q.asks, blockedOne.With(args...))
			continue
		}
		for len(args) < maxTogether+2 {
			args = append(args, args[2])
		}
		q.asks = append(q.asks, blockedMany.With(args...))
	}
	return q
}

func (q *Inquiry) begin() {
	q.Blocked = nil
	for _, key := range q.played {
		q.block(key, Bounce)
	}
}

func (q *Inquiry) block(key string, r Reason) {
	if q.Blocked == nil {
		q.Blocked = map[string]Reason{}
	}
	if r != Unsubscribe || q.Blocked[key] == "" { // what stops all mail says more
		q.Blocked[key] = r
	}
}

func (q *Inquiry) read(r db.Row) error {
	var key string
	var reason Reason
	err := r.Scan(&key, (*string)(&reason))
	q.block(key, reason)
	return err
}

// Queue asks in the guard of a job: Blocked is right in its apply, and after the
// commit.
func (q *Inquiry) Queue(b *db.Batch) {
	q.begin()
	for _, s := range q.asks {
		b.Queue(s).Each(q.read)
	}
}

// Blocked answers an Inquire at once.
func (l *List) Blocked(ctx context.Context, account db.ID, addresses []address.Address, unsubscribable bool) (map[string]Reason, error) {
	q := l.Inquire(account, addresses, unsubscribable)
	q.begin()
	for _, s := range q.asks {
		if err := l.DB.Each(ctx, s, q.read); err != nil {
			return nil, err
		}
	}
	return q.Blocked, nil
}

var (
	add = db.SQL(`INSERT INTO suppression (id, account, address, scope, reason, message, n, diagnostic, simulated, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (account, address, scope) DO NOTHING`)
	addTold = db.SQL(`INSERT INTO suppression (id, account, address, scope, reason, message, n, diagnostic, simulated, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (account, address, scope) DO NOTHING RETURNING id`)
)

// Add makes the statement that puts an address on its account's list, for use
// in the caller's transaction: it changes one row, or none if the address is
// there already, with its first reason. ok is false for what never enters the
// list: something that is no address, and simulator addresses, but for a
// bounce of bounced@simulator.test. The entry's id is made, and its time unless
// it is given.
func (l *List) Add(e Entry) (s db.Statement, ok bool) { return l.insert(add, e) }

func (l *List) insert(q *db.Query, e Entry) (s db.Statement, ok bool) {
	a, err := address.Parse(e.Address)
	if err != nil {
		return s, false
	}
	if e.Simulated = Simulator(a); e.Simulated && (e.Reason != Bounce || Plays(a) != PlaysBounced) {
		return s, false
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = l.Now()
	}
	e.Diagnostic = clean(e.Diagnostic, maxDiagnostic)
	return q.With(l.DB.NewID(), e.Account, a.Key(), e.Reason.scope(), string(e.Reason), e.Message, e.N, e.Diagnostic, e.Simulated,
		db.Micros(e.CreatedAt)), true
}

// clean makes text from outside fit for a TEXT column of both engines.
func clean(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
