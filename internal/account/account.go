// SPDX-License-Identifier: Apache-2.0

// Package account manages the customers' accounts, and the API keys with which applications act for
// them.
package account

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// Account is a customer.
type Account struct {
	ID        db.ID
	Email     string
	Name      string
	Status    string // active or suspended
	CreatedAt time.Time
}

// Accounts creates, finds and authenticates accounts and keys.
type Accounts struct {
	db  *db.DB
	hub *notify.Hub
	now func() time.Time

	mu          sync.Mutex
	keyCache    map[[32]byte]cachedKey // recently used keys, by hash
	statusCache map[db.ID]cachedStatus // recently used account statuses
	// changeCount counts deletions, so that data read before a deletion isn't cached.
	changeCount int
}

// New returns the accounts of a database.
func New(d *db.DB, hub *notify.Hub, now func() time.Time) *Accounts {
	return &Accounts{db: d, hub: hub, now: now, keyCache: map[[32]byte]cachedKey{}, statusCache: map[db.ID]cachedStatus{}}
}

const accountColumns = `id, email, name, status, created_at`

var (
	insertAccountQuery  = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, $3, 'active', $4)`)
	accountByIDQuery    = db.SQL(`SELECT ` + accountColumns + ` FROM account WHERE id = $1`)
	accountByEmailQuery = db.SQL(`SELECT ` + accountColumns + ` FROM account WHERE email = $1`)
)

// Create creates an account. The e-mail address identifies it to the operator; a second account
// with the same address is a fault.Conflict.
func (a *Accounts) Create(ctx context.Context, email, name string) (Account, error) {
	var bad fault.FieldErrors
	parsed, err := address.Parse(email)
	if err != nil {
		bad.Add("email", "invalid_address", "Give an e-mail address such as you@example.com.")
	}
	if len(name) > 200 || strings.ContainsAny(name, "\r\n\x00") {
		bad.Add("name", "invalid_name", "The name may have 200 bytes in one line.")
	}
	if err := bad.Err(); err != nil {
		return Account{}, err
	}
	acc := Account{ID: a.db.NewID(), Email: parsed.PersonKey(), Name: name, Status: "active", CreatedAt: a.now().UTC()}
	err = a.db.Run(ctx, insertAccountQuery.With(acc.ID, acc.Email, acc.Name, db.Micros(acc.CreatedAt)))
	if a.db.IsConflict(err) {
		return Account{}, fault.New(fault.Conflict, "email_taken", "There is an account with this e-mail address already.")
	}
	return acc, err
}

// EnsureOperatorAccount creates the operators' account if it doesn't exist.
func (a *Accounts) EnsureOperatorAccount(ctx context.Context) error {
	return a.db.Run(ctx, insertOperatorsQuery.With(OperatorAccount, db.Micros(a.now())))
}

var lockAccountQuery = db.SQL(`SELECT id FROM account WHERE id = $1 {for_update}`)

// Lock locks the account until the transaction ends. If the account doesn't exist, it returns
// fault.NotFound.
func (a *Accounts) Lock(ctx context.Context, tx *db.Tx, id db.ID) error {
	return db.IfNoRow(tx.One(ctx, lockAccountQuery.With(id), new(db.ID)), notFound())
}

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such account.") }

// Get finds an account, or returns fault.NotFound.
func (a *Accounts) Get(ctx context.Context, id db.ID) (Account, error) {
	return a.findAccount(ctx, accountByIDQuery.With(id))
}

// ByEmail finds an account by its address, or returns fault.NotFound.
func (a *Accounts) ByEmail(ctx context.Context, email string) (Account, error) {
	parsed, err := address.Parse(email)
	if err != nil {
		return Account{}, err
	}
	return a.findAccount(ctx, accountByEmailQuery.With(parsed.PersonKey()))
}

func (a *Accounts) findAccount(ctx context.Context, s db.Statement) (Account, error) {
	return db.Find(ctx, a.db, s, notFound(), scanAccount)
}

func scanAccount(r db.Row) (acc Account, err error) {
	err = r.Scan(&acc.ID, &acc.Email, &acc.Name, &acc.Status, db.TimeScanner(&acc.CreatedAt))
	return acc, err
}
