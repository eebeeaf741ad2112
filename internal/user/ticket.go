// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// TicketKind is what a link is for.
type TicketKind string

// The kinds.
const (
	Setup        TicketKind = "setup"   // the service has no user yet
	Invite       TicketKind = "invite"  // to an account
	Reset        TicketKind = "reset"   // to choose a new password
	Confirmation TicketKind = "confirm" // that somebody reads the mail of an address
)

// Ticket is what a link lets its holder do, once.
type Ticket struct {
	ID      db.ID
	Kind    TicketKind
	Account db.ID
	Person  db.ID
	Email   string // of whom it is for, as it is compared; "" for whoever has the link
	Address string // the same, as it was given
	Role    Role
	// Proves says that the link went nowhere but to the address by mail, so that
	// whoever has it reads that address's mail.
	Proves    bool
	Inviter   db.ID // who invites; 0: an operator at the command line
	InviterOf db.ID // the account in which the inviter may do so
	CreatedAt time.Time
	ExpiresAt time.Time
}

const (
	ticketToken = "mst_"
	inviteLife  = 7 * 24 * time.Hour
	resetLife   = time.Hour
	confirmLife = 24 * time.Hour
	setupLife   = 24 * time.Hour
)

var (
	insertTicket = db.SQL(`INSERT INTO dashboard_ticket (id, hash, kind, account, person, email, address, role, proves, confirms, inviter, inviter_of, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`)
	ticketByHash = db.SQL(`SELECT id, kind, account, person, email, address, role, proves, confirms, inviter, inviter_of, created_at, expires_at
		FROM dashboard_ticket WHERE hash = $1 AND expires_at > $2`)
	spendTicket    = db.SQL(`DELETE FROM dashboard_ticket WHERE id = $1`)
	ticketsExpired = db.SQL(`DELETE FROM dashboard_ticket WHERE id IN (SELECT id FROM dashboard_ticket WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`)
)

// issued makes the token of a ticket, and the statement that stores the ticket.
func (u *Users) issued(t Ticket, life time.Duration) (token string, insert db.Statement) {
	token = secret.Token(ticketToken, 20)
	now := u.Now()
	kind := t.Kind
	if kind == Confirmation { // which the table's CHECK does not know
		kind = Reset
	}
	return token, insertTicket.With(u.DB.NewID(), secret.Hash(token), string(kind), t.Account, t.Person, t.Email, t.Address, string(t.Role),
		flag(t.Proves), flag(t.Kind == Confirmation), t.Inviter, t.InviterOf, db.Micros(now), db.Micros(now.Add(life)))
}

func (u *Users) issue(ctx context.Context, t Ticket, life time.Duration) (token string, err error) {
	token, insert := u.issued(t, life)
	return token, u.exec(ctx, insert)
}

// Ticket finds what a link is for. One that was used or is too old is
// fault.NotFound.
func (u *Users) Ticket(ctx context.Context, token string) (Ticket, error) {
	gone := fault.New(fault.NotFound, "link_over", "This link was used already, or is too old. Ask for a new one.")
	if !secret.WellFormed(ticketToken, token) {
		return Ticket{}, gone
	}
	found, err := db.All(ctx, u.DB, ticketByHash.With(secret.Hash(token), db.Micros(u.Now())), scanTicket)
	if err != nil {
		return Ticket{}, err
	}
	if len(found) == 0 {
		return Ticket{}, gone
	}
	return found[0], nil
}

// spend takes a ticket out of use: of two who come at once, one.
func spend(ctx context.Context, tx *db.Tx, t Ticket) error {
	n, err := tx.Exec(ctx, spendTicket.With(t.ID))
	if err == nil && n == 0 {
		err = fault.New(fault.NotFound, "link_over", "This link was used already. Ask for a new one.")
	}
	return err
}

func scanTicket(r db.Row) (t Ticket, err error) {
	var created, expires int64
	var proves, confirms int
	err = r.Scan(&t.ID, (*string)(&t.Kind), &t.Account, &t.Person, &t.Email, &t.Address, (*string)(&t.Role), &proves, &confirms, &t.Inviter, &t.InviterOf, &created, &expires)
	t.Proves, t.CreatedAt, t.ExpiresAt = proves != 0, db.Time(created), db.Time(expires)
	if confirms != 0 {
		t.Kind = Confirmation
	}
	if t.Address == "" { // of an older release
		t.Address = t.Email
	}
	return t, err
}
