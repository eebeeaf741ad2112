// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"encoding/base32"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// TicketKind is what a link is for.
type TicketKind string

// The kinds.
const (
	Setup  TicketKind = "setup"  // the service has no user yet
	Invite TicketKind = "invite" // to an account
	Reset  TicketKind = "reset"  // to choose a new password
)

// Ticket is what a link lets its holder do, once.
type Ticket struct {
	ID        db.ID
	Kind      TicketKind
	Account   db.ID
	Person    db.ID
	Email     string // of who is invited; "" for whoever has the link
	Role      Role
	CreatedAt time.Time
	ExpiresAt time.Time
}

const (
	ticketToken = "mst_"
	inviteLife  = 7 * 24 * time.Hour
	resetLife   = time.Hour
	setupLife   = 24 * time.Hour
)

var (
	insertTicket = db.SQL(`INSERT INTO dashboard_ticket (id, hash, kind, account, person, email, role, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	ticketByHash = db.SQL(`SELECT id, kind, account, person, email, role, created_at, expires_at FROM dashboard_ticket
		WHERE hash = $1 AND expires_at > $2`)
	invitations = db.SQL(`SELECT id, kind, account, person, email, role, created_at, expires_at FROM dashboard_ticket
		WHERE account = $1 AND kind = 'invite' AND expires_at > $2 ORDER BY id LIMIT $3`)
	endInvites = db.SQL(`DELETE FROM dashboard_ticket WHERE account = $2 AND kind = 'invite'
		AND email = (SELECT email FROM dashboard_user WHERE id = $1)`)
	spendTicket    = db.SQL(`DELETE FROM dashboard_ticket WHERE id = $1`)
	withdraw       = db.SQL(`DELETE FROM dashboard_ticket WHERE id = $1 AND account = $2 AND kind = 'invite'`)
	ticketsExpired = db.SQL(`DELETE FROM dashboard_ticket WHERE id IN (SELECT id FROM dashboard_ticket WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`)
	otherUser      = db.SQL(`SELECT id FROM dashboard_user WHERE id > 0 AND id <> $1 ORDER BY id LIMIT 1`)
	spendSetups    = db.SQL(`DELETE FROM dashboard_ticket WHERE account = 0 AND kind = 'setup'`)
	endResets      = db.SQL(`DELETE FROM dashboard_ticket WHERE account = 0 AND kind = 'reset' AND person = $1`)
	setPassword    = db.SQL(`UPDATE dashboard_user SET password = $2 WHERE id = $1`)
)

// NewSetup makes a link for the first user of the service.
func (u *Users) NewSetup(ctx context.Context) (token string, err error) {
	return u.issue(ctx, Ticket{Kind: Setup, Role: Owner}, setupLife)
}

// NewInvite makes a link to join an account. It works for seven days. For a
// member it is a fault.Conflict, and where there are as many people as may be.
func (u *Users) NewInvite(ctx context.Context, account db.ID, email string, r Role) (token string, err error) {
	var bad fault.Fields
	key, err := parseEmail(email)
	if err := bad.Merge(err); err != nil {
		return "", err
	}
	if !r.valid() {
		bad.Add("role", "invalid", "The role is owner, member or reader.")
	}
	if err := bad.Err(); err != nil {
		return "", err
	}
	switch err := u.DB.One(ctx, memberByEmail.With(account, key), new(db.ID)); {
	case err == nil: // who accepts an invitation keeps the role that he has
		return "", fault.New(fault.Conflict, "already_member", "%s is a member already. Change the role instead.", key)
	case !errors.Is(err, db.ErrNoRow):
		return "", err
	}
	open, err := u.Invitations(ctx, account)
	if err != nil {
		return "", err
	}
	in, err := u.Members(ctx, account)
	if err != nil {
		return "", err
	}
	if len(open)+len(in) >= maxMembers { // more would be in, and not be shown
		return "", fault.New(fault.Conflict, "too_many_people", "An account may have %d people, with those who are invited. Withdraw an invitation or remove somebody first.", maxMembers)
	}
	return u.issue(ctx, Ticket{Kind: Invite, Account: account, Email: key, Role: r}, inviteLife)
}

// NewReset makes a link to choose a new password. It works for an hour.
func (u *Users) NewReset(ctx context.Context, who User) (token string, err error) {
	return u.issue(ctx, Ticket{Kind: Reset, Person: who.ID, Email: who.Email}, resetLife)
}

func (u *Users) issue(ctx context.Context, t Ticket, life time.Duration) (token string, err error) {
	token = secret.Token(ticketToken, 20)
	now := u.Now()
	return token, u.exec(ctx, insertTicket.With(u.DB.NewID(), secret.Hash(token), string(t.Kind), t.Account, t.Person, t.Email, string(t.Role),
		db.Micros(now), db.Micros(now.Add(life))))
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

// Invitations lists the open ones of an account.
func (u *Users) Invitations(ctx context.Context, account db.ID) ([]Ticket, error) {
	return db.All(ctx, u.DB, invitations.With(account, db.Micros(u.Now()), maxMembers), scanTicket)
}

// Withdraw ends an invitation. For one that was accepted or withdrawn already it is
// a fault.Conflict: somebody may be in.
func (u *Users) Withdraw(ctx context.Context, account, id db.ID) error {
	n, err := u.DB.Exec(ctx, withdraw.With(id, account))
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "invitation_over", "This invitation is over: it was accepted or withdrawn already.")
	}
	return err
}

// Redeem makes the user whom a setup link or an invitation lets in, as a member
// of its account and of more.
func (u *Users) Redeem(ctx context.Context, token string, n New, more ...db.ID) (User, error) {
	t, err := u.Ticket(ctx, token)
	if err != nil {
		return User{}, err
	}
	if t.Kind == Reset {
		return User{}, fault.New(fault.NotFound, "link_over", "This link is for a new password.")
	}
	if t.Email != "" {
		n.Email = t.Email
	}
	return u.create(ctx, n, func(tx *db.Tx, made User) error {
		if err := spend(ctx, tx, t); err != nil {
			return err
		}
		if t.Kind == Invite {
			if err := u.join(ctx, tx, t.Account, made.ID, t.Role); err != nil {
				return err
			}
		} else if err := u.first(ctx, tx, made); err != nil {
			return err
		}
		for _, a := range more {
			if err := u.join(ctx, tx, a, made.ID, Owner); err != nil {
				return err
			}
		}
		return nil
	})
}

// first ends all setup links: each start without a user made one. A node that
// started just then may have made another, which lets in nobody after the first:
// who ends the links waits for whoever is at it, and sees that user then.
func (u *Users) first(ctx context.Context, tx *db.Tx, made User) error {
	if _, err := tx.Exec(ctx, spendSetups.With()); err != nil {
		return err
	}
	err := tx.One(ctx, otherUser.With(made.ID), new(db.ID))
	if errors.Is(err, db.ErrNoRow) {
		return nil
	}
	if err == nil {
		err = fault.New(fault.NotFound, "link_over", "The service has been set up already. Ask for an invitation.")
	}
	return err
}

// Accept makes a user who is here already a member of the account of an
// invitation to the same address.
func (u *Users) Accept(ctx context.Context, token string, who User) (account db.ID, err error) {
	t, err := u.Ticket(ctx, token)
	if err != nil {
		return 0, err
	}
	if t.Kind != Invite || t.Email != "" && t.Email != who.Email {
		return 0, fault.New(fault.Denied, "not_yours", "This invitation is for another e-mail address.")
	}
	return t.Account, u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := spend(ctx, tx, t); err != nil {
			return err
		}
		return u.join(ctx, tx, t.Account, who.ID, t.Role)
	})
}

// SetPassword chooses a new password by a reset link, and ends all sessions of
// the user.
func (u *Users) SetPassword(ctx context.Context, token, password string) error {
	t, err := u.Ticket(ctx, token)
	if err != nil {
		return err
	}
	if t.Kind != Reset {
		return fault.New(fault.NotFound, "link_over", "This link is not for a new password.")
	}
	if err := credential.Check("password", password).Err(); err != nil {
		return err
	}
	phc, err := u.Hasher.Hash(ctx, credential.Requester{Target: t.Person.String()}, password)
	if err != nil {
		return err
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := spend(ctx, tx, t); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, setPassword.With(t.Person, phc)); err != nil {
			return err
		}
		return shutOut(ctx, tx, t.Person, 0)
	})
}

// shutOut ends what a former password let in: all sessions of a user but one,
// and links to choose another.
func shutOut(ctx context.Context, tx *db.Tx, person, but db.ID) error {
	if _, err := tx.Exec(ctx, endOthers.With(person, but)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, endResets.With(person))
	return err
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
	err = r.Scan(&t.ID, (*string)(&t.Kind), &t.Account, &t.Person, &t.Email, (*string)(&t.Role), &created, &expires)
	t.CreatedAt, t.ExpiresAt = db.Time(created), db.Time(expires)
	return t, err
}

// decodeSecret reads the base32 of an authenticator's secret.
func decodeSecret(text string) ([]byte, error) {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(text))
	if err != nil || len(raw) < 10 || len(raw) > 64 {
		return nil, fault.New(fault.Invalid, "invalid_secret", "Begin again: the secret is damaged.")
	}
	return raw, nil
}
