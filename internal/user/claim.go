// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"math"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Who reads the mail of an address proves it by a link that was sent there and
// shown to nobody else. A user who has not done that may have any address: by the
// setup link, by a link of the command line, from an older release. So that user
// holds the address only until somebody proves it.

var (
	confirm = db.SQL(`UPDATE dashboard_user SET address = $2, verified_at = $3 WHERE id = $1 AND verified_at = 0`)
	claim   = db.SQL(`UPDATE dashboard_user SET address = $2, name = $3, password = $4, verified_at = $5, totp = NULL, totp_step = 0
		WHERE id = $1 AND verified_at = 0`)
	setPassword  = db.SQL(`UPDATE dashboard_user SET password = $2, totp = CASE WHEN verified_at = 0 THEN NULL ELSE totp END WHERE id = $1`)
	dropUnproven = db.SQL(`DELETE FROM dashboard_recovery WHERE person = $1 AND EXISTS (SELECT 1 FROM dashboard_user WHERE id = $1 AND verified_at = 0)`)
	endResets    = db.SQL(`DELETE FROM dashboard_ticket WHERE account = 0 AND kind = 'reset' AND person = $1`)
)

// Claims lists the accounts that the unconfirmed user of a link's address belongs
// to. Whoever proves the address by the link says of each whether the membership
// goes on: it may be an account that somebody else has made in the address's name.
// That of the operators is never among them.
func (u *Users) Claims(ctx context.Context, t Ticket) ([]Membership, error) {
	if !t.Proves || t.Kind != Invite && t.Kind != Reset {
		return nil, nil
	}
	who, err := u.find(ctx, byEmail.With(t.Email))
	if fault.Is(err, fault.NotFound) || err == nil && who.Verified() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	of, err := db.All(ctx, u.DB, memberships.With(who.ID, maxMembers+1), scanMembership) // one may be that of the operators
	if of = u.claimable(of); len(of) > maxMembers {
		of = of[:maxMembers]
	}
	return of, err
}

func (u *Users) claimable(of []Membership) (open []Membership) {
	for _, m := range of {
		if m.Account != u.Operators {
			open = append(open, m)
		}
	}
	return open
}

// claim gives an address to who has proven it, with the user who had not: nothing
// by which that one could sign in goes on, nor a membership that keep does not
// name. It is a fault of the field "keep" if an account is missing there.
func (u *Users) claim(ctx context.Context, tx *db.Tx, who User, phc string, keep map[db.ID]bool) error {
	now := u.Now()
	n, err := tx.Exec(ctx, claim.With(who.ID, who.Address, who.Name, phc, db.Micros(now)))
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "email_taken", "Somebody with this e-mail address is here already: sign in instead.")
	}
	if err != nil {
		return err
	}
	of, err := db.All(ctx, tx, memberships.With(who.ID, math.MaxInt32), scanMembership)
	if err != nil {
		return err
	}
	for i, m := range u.claimable(of) {
		if _, chosen := keep[m.Account]; !chosen && i < maxMembers { // no more are asked about, nor kept
			var bad fault.Fields
			bad.Add("keep", "required", "Say for each account whether you keep it.")
			return bad.Err()
		}
	}
	for _, m := range of {
		if m.Account != u.Operators && keep[m.Account] {
			continue
		}
		const what = "Somebody proved this address by mail. Who had it without proof is out of the account."
		err := exec(ctx, tx, leave.With(m.Account, who.ID))
		if err == nil {
			err = u.audit().WriteIn(ctx, tx, audit.Entry{Account: m.Account, Actor: audit.Actor{Kind: audit.User, ID: who.ID, Name: who.Email}, Action: "claim", What: what})
		}
		if err != nil {
			return err
		}
	}
	if err := exec(ctx, tx, clearRecovery.With(who.ID), endAllBy.With(who.ID)); err != nil {
		return err
	}
	return u.shutOut(ctx, tx, who.ID, 0)
}

// NewReset makes a link to choose a new password, for an operator at the command
// line to pass on: see SendReset. proves is as for NewInvite.
func (u *Users) NewReset(ctx context.Context, who User, proves bool) (token string, err error) {
	return u.issue(ctx, Ticket{Kind: Reset, Person: who.ID, Email: who.Email, Address: who.Address, Proves: proves}, resetLife)
}

// SendReset sends a link to choose a new password to the address of a user as it
// was given; it works for an hour. A user who has not proven the address and is an
// operator gets none, which is fault.Denied: whoever reads that mail would be one.
func (u *Users) SendReset(ctx context.Context, who User) error {
	if !who.Verified() && u.Operators != 0 {
		switch err := u.DB.One(ctx, roleOf.With(u.Operators, who.ID), new(string)); {
		case err == nil:
			return fault.New(fault.Denied, "unconfirmed_operator", "An operator whose address is not confirmed gets no link by mail. Make one with mailstead user link.")
		case !noRow(err):
			return err
		}
	}
	giveBack, err := u.reserve(ctx, counter{"reset", who.Email, resetsPerHour, resetLife})
	if err != nil {
		return err
	}
	token, err := u.NewReset(ctx, who, true)
	if err != nil {
		return err
	}
	return u.send(ctx, who.Address, reset(u, token), token, giveBack)
}

// SetPassword chooses a new password by a reset link, and ends all sessions and
// links of the user. Second factors that were set up before the address was proven
// go as well. keep is that of New.
func (u *Users) SetPassword(ctx context.Context, token, password string, keep map[db.ID]bool) error {
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
		who, _, err := u.locked(ctx, tx, t.Email)
		if err != nil {
			return err
		}
		if t.Proves && who.ID == t.Person && !who.Verified() {
			who.Address = t.Address
			return u.claim(ctx, tx, who, phc, keep)
		}
		if err := exec(ctx, tx, dropUnproven.With(t.Person), setPassword.With(t.Person, phc)); err != nil {
			return err
		}
		return u.shutOut(ctx, tx, t.Person, 0)
	})
}

// SendConfirmation sends a user the link that confirms the address; it works for a
// day, where the user is signed in.
func (u *Users) SendConfirmation(ctx context.Context, who User) error {
	giveBack, err := u.reserve(ctx, counter{"confirm", who.Email, confirmsPerDay, confirmLife})
	if err != nil {
		return err
	}
	token, err := u.issue(ctx, Ticket{Kind: Confirmation, Person: who.ID, Email: who.Email, Address: who.Address, Proves: true}, confirmLife)
	if err != nil {
		return err
	}
	return u.send(ctx, who.Address, confirmation(u, token), token, giveBack)
}

// ConfirmAddress takes the link of SendConfirmation. It must be the session's own
// user: else somebody could have an address confirmed by who reads its mail and
// follows any link.
func (u *Users) ConfirmAddress(ctx context.Context, in Session, token string) error {
	t, err := u.Ticket(ctx, token)
	if err != nil {
		return err
	}
	if t.Kind != Confirmation || t.Person != in.User.ID {
		return fault.New(fault.Denied, "not_yours", "This link is for another user. Sign in as that user, then follow it again.")
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := spend(ctx, tx, t); err != nil {
			return err
		}
		return exec(ctx, tx, confirm.With(t.Person, t.Address, db.Micros(u.Now())))
	})
}

// shutOut ends what a former password let in: all sessions of a user but one,
// links to choose another, and the networks that it signed in from.
func (u *Users) shutOut(ctx context.Context, tx *db.Tx, person, but db.ID) error {
	if err := exec(ctx, tx, endOthers.With(person, but), endResets.With(person)); err != nil {
		return err
	}
	return u.Logins.ForgetNetworks(ctx, tx, credentialOf("user", person))
}
