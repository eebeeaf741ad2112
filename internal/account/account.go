// SPDX-License-Identifier: Apache-2.0

// Package account keeps the customers and the keys by which their
// applications act for them.
package account

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
)

// Account is a customer.
type Account struct {
	ID        db.ID
	Email     string
	Name      string
	Status    string // active or suspended
	CreatedAt time.Time
}

// Accounts creates, finds and authenticates.
type Accounts struct {
	db  *db.DB
	hub *signal.Hub
	now func() time.Time

	mu       sync.Mutex
	known    map[[32]byte]known // keys seen a moment ago, by hash
	standing map[db.ID]standing // accounts asked for a moment ago
	// changes counts deletions, so that what was read before one is not kept.
	changes int
}

// New returns the accounts of a database.
func New(d *db.DB, hub *signal.Hub, now func() time.Time) *Accounts {
	return &Accounts{db: d, hub: hub, now: now, known: map[[32]byte]known{}, standing: map[db.ID]standing{}}
}

var (
	insertAccount  = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, $3, 'active', $4)`)
	accountByID    = db.SQL(`SELECT id, email, name, status, created_at FROM account WHERE id = $1`)
	accountByEmail = db.SQL(`SELECT id, email, name, status, created_at FROM account WHERE email = $1`)
)

// Create makes an account. The e-mail address identifies it to the operator;
// a second account of one address is a fault.Conflict.
func (a *Accounts) Create(ctx context.Context, email, name string) (Account, error) {
	var bad fault.Fields
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
	_, err = a.db.Exec(ctx, insertAccount.With(acc.ID, acc.Email, acc.Name, db.Micros(acc.CreatedAt)))
	if a.db.IsConflict(err) {
		return Account{}, fault.New(fault.Conflict, "email_taken", "There is an account with this e-mail address already.")
	}
	return acc, err
}

// HaveOperators makes the account of the operators unless it is there.
func (a *Accounts) HaveOperators(ctx context.Context) error {
	_, err := a.db.Exec(ctx, insertOperators.With(Operators, db.Micros(a.now())))
	return err
}

var hold = db.SQL(`SELECT id FROM account WHERE id = $1 {for_update}`)

// Hold makes others who hold the account wait until the transaction ends. An
// account that is not there is fault.NotFound.
func (a *Accounts) Hold(ctx context.Context, tx *db.Tx, id db.ID) error {
	err := tx.One(ctx, hold.With(id), new(db.ID))
	if errors.Is(err, db.ErrNoRow) {
		return fault.New(fault.NotFound, "not_found", "There is no such account.")
	}
	return err
}

// Get finds an account, or returns fault.NotFound.
func (a *Accounts) Get(ctx context.Context, id db.ID) (Account, error) {
	return a.find(ctx, accountByID.With(id))
}

// ByEmail finds an account by its address, or returns fault.NotFound.
func (a *Accounts) ByEmail(ctx context.Context, email string) (Account, error) {
	parsed, err := address.Parse(email)
	if err != nil {
		return Account{}, err
	}
	return a.find(ctx, accountByEmail.With(parsed.PersonKey()))
}

func (a *Accounts) find(ctx context.Context, s db.Statement) (Account, error) {
	var acc Account
	var created int64
	err := a.db.One(ctx, s, &acc.ID, &acc.Email, &acc.Name, &acc.Status, &created)
	if errors.Is(err, db.ErrNoRow) {
		return acc, fault.New(fault.NotFound, "not_found", "There is no such account.")
	}
	acc.CreatedAt = db.Time(created)
	return acc, err
}
