// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	invitations = db.SQL(`SELECT id, kind, account, person, email, address, role, proves, confirms, inviter, inviter_of, created_at, expires_at
		FROM dashboard_ticket WHERE account >= $1 AND account <= $1 AND kind = 'invite' AND expires_at > $2 ORDER BY account, id LIMIT $3`)
	people = db.SQL(`SELECT (SELECT COUNT(*) FROM dashboard_member WHERE account = $1)
		+ (SELECT COUNT(*) FROM dashboard_ticket WHERE account = $1 AND kind = 'invite' AND expires_at > $2)`)
	// mayInvite keeps the inviter in the role until the invitation is written: who
	// ends the role ends the invitation then.
	mayInvite  = db.SQL(`SELECT person FROM dashboard_member WHERE account = $1 AND person = $2 AND role = $3 {for_update}`)
	endInvites = db.SQL(`DELETE FROM dashboard_ticket WHERE account = $2 AND kind = 'invite'
		AND email = (SELECT email FROM dashboard_user WHERE id = $1)`)
	endInvitesBy = db.SQL(`DELETE FROM dashboard_ticket WHERE inviter = $1 AND inviter_of = $2 AND kind = 'invite'`)
	endAllBy     = db.SQL(`DELETE FROM dashboard_ticket WHERE inviter = $1 AND kind = 'invite'`)
	withdraw     = db.SQL(`DELETE FROM dashboard_ticket WHERE id = $1 AND account = $2 AND kind = 'invite'`)
	otherUser    = db.SQL(`SELECT id FROM dashboard_user WHERE id > 0 AND id <> $1 ORDER BY id LIMIT 1`)
	spendSetups  = db.SQL(`DELETE FROM dashboard_ticket WHERE account = 0 AND kind = 'setup'`)
)

// NewSetup makes a link for the first user of the service.
func (u *Users) NewSetup(ctx context.Context) (token string, err error) {
	return u.issue(ctx, Ticket{Kind: Setup, Role: Owner}, setupLife)
}

// NewInvite makes a link to join an account, for an operator at the command line
// to pass on: see Invite. proves says that the operator vouches for it that only
// the holder of the address gets the link.
func (u *Users) NewInvite(ctx context.Context, account db.ID, email string, r Role, proves bool) (token string, err error) {
	return u.invite(ctx, Ticket{Kind: Invite, Account: account, Address: email, Role: r, Proves: proves}, "")
}

// Invite sends a link to join an account to an address. It works for seven days,
// while the session's user keeps the role by which the invitation was made: in the
// account, or among the operators.
// Nobody sees the link but whoever reads the mail. name is what the account is
// called. For a member of the account it is a fault.Conflict, and where there are
// as many people as may be; when too many were sent it is fault.Limited. Nothing
// in the answer depends on whether the address has a user elsewhere.
func (u *Users) Invite(ctx context.Context, by Session, account db.ID, name, email string, r Role) error {
	key, exact, err := parseEmail(email)
	if err != nil {
		_, err = u.invite(ctx, Ticket{Address: email, Role: r}, "") // which tells all that is wrong
		return err
	}
	if account != by.Account && by.Account != u.Operators {
		return notAllowed()
	}
	giveBack, err := u.reserve(ctx, invitationsOf(by, key)...)
	if err != nil {
		return err
	}
	token, err := u.invite(ctx, Ticket{Kind: Invite, Account: account, Address: exact, Role: r, Proves: true, Inviter: by.User.ID, InviterOf: by.Account}, by.Role)
	if err != nil {
		return errors.Join(err, giveBack())
	}
	return u.send(ctx, exact, invitation(u, by, name, token), token, giveBack)
}

// invite makes an invitation, by somebody with a role in the account that makes
// it, or at the command line.
func (u *Users) invite(ctx context.Context, t Ticket, by Role) (token string, err error) {
	var bad fault.Fields
	t.Email, t.Address, err = parseEmail(t.Address)
	if err := bad.Merge(err); err != nil {
		return "", err
	}
	if !t.Role.valid() {
		bad.Add("role", "invalid", "The role is owner, member or reader.")
	}
	if err := bad.Err(); err != nil {
		return "", err
	}
	token, insert := u.issued(t, inviteLife)
	return token, u.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, lockMembers.With(t.Account)); err != nil {
			return err
		}
		if t.Inviter != 0 {
			err := tx.One(ctx, mayInvite.With(t.InviterOf, t.Inviter, string(by)), new(db.ID))
			if errors.Is(err, db.ErrNoRow) {
				err = notAllowed()
			}
			if err != nil {
				return err
			}
		}
		switch err := tx.One(ctx, memberByEmail.With(t.Account, t.Email), new(db.ID)); {
		case err == nil: // who accepts an invitation keeps the role that he has
			return fault.New(fault.Conflict, "already_member", "%s is a member already. Change the role instead.", t.Email)
		case !errors.Is(err, db.ErrNoRow):
			return err
		}
		var n int64
		if err := tx.One(ctx, people.With(t.Account, db.Micros(u.Now())), &n); err != nil {
			return err
		}
		if n >= maxMembers { // more would be in, and not be shown
			return fault.New(fault.Conflict, "too_many_people", "An account may have %d people, with those who are invited. Withdraw an invitation or remove somebody first.", maxMembers)
		}
		return exec(ctx, tx, insert)
	})
}

func notAllowed() error {
	return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
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
// of its account and of more. A link that proves the address takes it from a user
// who has not proven it: see Claims.
func (u *Users) Redeem(ctx context.Context, token string, n New, more ...db.ID) (User, error) {
	t, err := u.Ticket(ctx, token)
	if err != nil {
		return User{}, err
	}
	if t.Kind != Setup && t.Kind != Invite {
		return User{}, fault.New(fault.NotFound, "link_over", "This link is for something else.")
	}
	if t.Email != "" {
		n.Email = t.Address
	}
	return u.create(ctx, n, t.Proves, func(tx *db.Tx, made User) error {
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
// invitation to the same address. One that proves the address confirms it.
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
		if t.Proves {
			if err := exec(ctx, tx, confirm.With(who.ID, t.Address, db.Micros(u.Now()))); err != nil {
				return err
			}
		}
		return u.join(ctx, tx, t.Account, who.ID, t.Role)
	})
}
