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

// A user verifies an address with a link that was sent there and shown to nobody else. An
// unverified user may have any address: by the setup link or by a link of the command line. So that user has the address only until somebody verifies it.

var (
	confirmAddressQuery = db.SQL(`UPDATE dashboard_user SET address = $2, verified_at = $3 WHERE id = $1 AND verified_at = 0`)
	takeOverQuery       = db.SQL(`UPDATE dashboard_user SET address = $2, name = $3, password = $4, verified_at = $5, totp = NULL, totp_step = 0
		WHERE id = $1 AND verified_at = 0`)
	setPasswordQuery             = db.SQL(`UPDATE dashboard_user SET password = $2, totp = CASE WHEN verified_at = 0 THEN NULL ELSE totp END WHERE id = $1`)
	clearUnverifiedRecoveryQuery = db.SQL(`DELETE FROM dashboard_recovery_code WHERE person = $1 AND EXISTS (SELECT 1 FROM dashboard_user WHERE id = $1 AND verified_at = 0)`)
	deleteResetLinksQuery        = db.SQL(`DELETE FROM dashboard_ticket WHERE account = 0 AND kind = 'reset' AND person = $1`)
)

// UnverifiedMemberships lists the accounts of the unverified user with a link's address. The person
// who verifies the address by the link decides which memberships to keep, because somebody else may
// have created an account in the address's name. The operators' account is never included.
func (u *Users) UnverifiedMemberships(ctx context.Context, t Link) ([]Membership, error) {
	if !t.ProvesAddress || t.Kind != LinkInvite && t.Kind != LinkReset {
		return nil, nil
	}
	who, err := u.findUser(ctx, userByEmailQuery.With(t.Email))
	if fault.Is(err, fault.NotFound) || err == nil && who.Verified() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	of, err := db.All(ctx, u.DB, membershipsQuery.With(who.ID, maxMembers+1), scanMembership) // one may be the operators' account
	if of = u.keepableMemberships(of); len(of) > maxMembers {
		of = of[:maxMembers]
	}
	return of, err
}

func (u *Users) keepableMemberships(of []Membership) (open []Membership) {
	for _, m := range of {
		if m.Account != u.OperatorAccount {
			open = append(open, m)
		}
	}
	return open
}

// takeOverAddress gives the user of an unverified address to the person who has verified it. It
// removes all means of signing in, and all memberships that keep doesn't select. A missing account
// is a fault of the field "keep".
func (u *Users) takeOverAddress(ctx context.Context, tx *db.Tx, who User, phc string, keep map[db.ID]bool) error {
	taken := fault.New(fault.Conflict, "email_taken", "Somebody with this e-mail address is here already: sign in instead.")
	if err := tx.ExecOrFail(ctx, takeOverQuery.With(who.ID, who.Address, who.Name, phc, db.Micros(u.Now())), taken); err != nil {
		return err
	}
	of, err := db.All(ctx, tx, membershipsQuery.With(who.ID, math.MaxInt32), scanMembership)
	if err != nil {
		return err
	}
	for i, m := range u.keepableMemberships(of) {
		if _, chosen := keep[m.Account]; !chosen && i < maxMembers { // others were not shown and are not kept
			var bad fault.FieldErrors
			bad.Add("keep", "required", "Say for each account whether you keep it.")
			return bad.Err()
		}
	}
	for _, m := range of {
		if m.Account != u.OperatorAccount && keep[m.Account] {
			continue
		}
		const what = "Somebody proved this address by mail. Who had it without proof is out of the account."
		err := tx.Run(ctx, deleteMemberQuery.With(m.Account, who.ID))
		if err == nil {
			err = u.auditLog().WriteTx(ctx, tx, audit.Entry{Account: m.Account, Actor: audit.Actor{Kind: audit.ActorUser, ID: who.ID, Name: who.Email}, Action: "claim", Description: what})
		}
		if err != nil {
			return err
		}
	}
	if err := tx.Run(ctx, clearRecoveryQuery.With(who.ID), deleteAllInvitesByQuery.With(who.ID)); err != nil {
		return err
	}
	return u.revokeAccess(ctx, tx, who.ID, 0)
}

// CreateResetLink creates a link to choose a new password, which an operator at the command line
// passes on: see SendResetLink. proves is as for CreateInviteLink.
func (u *Users) CreateResetLink(ctx context.Context, who User, proves bool) (token string, err error) {
	return u.issueLink(ctx, Link{Kind: LinkReset, User: who.ID, Email: who.Email, Address: who.Address, ProvesAddress: proves}, resetLinkTTL)
}

// SendResetLink sends a link to choose a new password to a user's address as given; it works for an
// hour. An operator with an unverified address gets no link, but fault.Denied: otherwise the
// recipient of that mail would become an operator.
func (u *Users) SendResetLink(ctx context.Context, who User) error {
	if !who.Verified() && u.OperatorAccount != 0 {
		switch operator, err := db.Exists(ctx, u.DB, roleQuery.With(u.OperatorAccount, who.ID)); {
		case operator:
			return fault.New(fault.Denied, "unconfirmed_operator", "An operator whose address is not confirmed gets no link by mail. Make one with mailstead user link.")
		case err != nil:
			return err
		}
	}
	giveBack, err := u.reserveMail(ctx, mailLimit{"reset", who.Email, resetsPerHour, resetLinkTTL})
	if err != nil {
		return err
	}
	token, err := u.CreateResetLink(ctx, who, true)
	if err != nil {
		return err
	}
	return u.sendLink(ctx, who.Address, resetMail(u, token), token, giveBack)
}

// ResetPassword sets a new password by a reset link, and ends all sessions and links of the user.
// It also removes a second factor that was set up before the address was verified. keep is as in
// CreateParams.
func (u *Users) ResetPassword(ctx context.Context, token, password string, keep map[db.ID]bool) error {
	t, err := u.FindLink(ctx, token)
	if err != nil {
		return err
	}
	if t.Kind != LinkReset {
		return fault.New(fault.NotFound, "link_over", "This link is not for a new password.")
	}
	if err := credential.CheckNewPassword("password", password).Err(); err != nil {
		return err
	}
	phc, err := u.Hasher.Hash(ctx, credential.Requester{Target: t.User.String()}, password)
	if err != nil {
		return err
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := redeemLink(ctx, tx, t); err != nil {
			return err
		}
		who, _, err := u.lockByEmail(ctx, tx, t.Email)
		if err != nil {
			return err
		}
		if t.ProvesAddress && who.ID == t.User && !who.Verified() {
			who.Address = t.Address
			return u.takeOverAddress(ctx, tx, who, phc, keep)
		}
		if err := tx.Run(ctx, clearUnverifiedRecoveryQuery.With(t.User), setPasswordQuery.With(t.User, phc)); err != nil {
			return err
		}
		return u.revokeAccess(ctx, tx, t.User, 0)
	})
}

// SendConfirmationLink sends a user the link that confirms the address; it works for a day, in a
// session of the user.
func (u *Users) SendConfirmationLink(ctx context.Context, who User) error {
	giveBack, err := u.reserveMail(ctx, mailLimit{"confirm", who.Email, confirmationsPerDay, confirmationLinkTTL})
	if err != nil {
		return err
	}
	token, err := u.issueLink(ctx, Link{Kind: LinkConfirmation, User: who.ID, Email: who.Email, Address: who.Address, ProvesAddress: true}, confirmationLinkTTL)
	if err != nil {
		return err
	}
	return u.sendLink(ctx, who.Address, confirmationMail(u, token), token, giveBack)
}

// ConfirmAddress uses the link of SendConfirmationLink. It must belong to the session's user:
// otherwise somebody could get an address confirmed by its real recipient, who follows the link.
func (u *Users) ConfirmAddress(ctx context.Context, in Session, token string) error {
	t, err := u.FindLink(ctx, token)
	if err != nil {
		return err
	}
	if t.Kind != LinkConfirmation || t.User != in.User.ID {
		return fault.New(fault.Denied, "not_yours", "This link is for another user. Sign in as that user, then follow it again.")
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := redeemLink(ctx, tx, t); err != nil {
			return err
		}
		return tx.Run(ctx, confirmAddressQuery.With(t.User, t.Address, db.Micros(u.Now())))
	})
}

// revokeAccess revokes what a former password gave access to: all sessions of a user except one,
// password links, and the known networks.
func (u *Users) revokeAccess(ctx context.Context, tx *db.Tx, person, but db.ID) error {
	if err := tx.Run(ctx, deleteOtherSessionsQuery.With(person, but), deleteResetLinksQuery.With(person)); err != nil {
		return err
	}
	return u.Logins.ForgetNetworks(ctx, tx, credentialOf("user", person))
}
