// SPDX-License-Identifier: Apache-2.0

package user

import (
	"cmp"
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	invitationsQuery            = db.SQL(`SELECT ` + linkColumns + ` FROM dashboard_ticket WHERE account >= $1 AND account <= $1 AND kind = 'invite' AND expires_at > $2 ORDER BY account, id LIMIT $3`)
	countMembersAndInvitesQuery = db.SQL(`SELECT (SELECT COUNT(*) FROM dashboard_member WHERE account = $1)
		+ (SELECT COUNT(*) FROM dashboard_ticket WHERE account = $1 AND kind = 'invite' AND expires_at > $2)`)
	// lockInviterRoleQuery locks the inviter's role until the invitation is written. A change of
	// the role then also deletes the invitation.
	lockInviterRoleQuery = db.SQL(`SELECT person FROM dashboard_member WHERE account = $1 AND person = $2 AND role = $3 {for_update}`)
	deleteInvitesToQuery = db.SQL(`DELETE FROM dashboard_ticket WHERE account = $2 AND kind = 'invite'
		AND email = (SELECT email FROM dashboard_user WHERE id = $1)`)
	deleteInvitesByQuery    = db.SQL(`DELETE FROM dashboard_ticket WHERE inviter = $1 AND inviter_of = $2 AND kind = 'invite'`)
	deleteAllInvitesByQuery = db.SQL(`DELETE FROM dashboard_ticket WHERE inviter = $1 AND kind = 'invite'`)
	withdrawInviteQuery     = db.SQL(`DELETE FROM dashboard_ticket WHERE id = $1 AND account = $2 AND kind = 'invite'`)
	otherUserQuery          = db.SQL(`SELECT id FROM dashboard_user WHERE id > 0 AND id <> $1 ORDER BY id LIMIT 1`)
	deleteSetupLinksQuery   = db.SQL(`DELETE FROM dashboard_ticket WHERE account = 0 AND kind = 'setup'`)
)

// CreateSetupLink creates a link for the first user of the service.
func (u *Users) CreateSetupLink(ctx context.Context) (token string, err error) {
	return u.issueLink(ctx, Link{Kind: LinkSetup, Role: RoleOwner}, setupLinkTTL)
}

// CreateInviteLink creates a link to join an account, which an operator at the command line passes
// on (see LinkInvite). proves means that the operator guarantees that only the owner of the address
// gets the link.
func (u *Users) CreateInviteLink(ctx context.Context, account db.ID, email string, r Role, proves bool) (token string, err error) {
	return u.createInvitation(ctx, Link{Kind: LinkInvite, Account: account, Address: email, Role: r, ProvesAddress: proves}, "")
}

// Invite sends a link to join an account to an address. It works for seven days, as long as the
// session's user keeps the role that allows the invitation: in the account, or among the operators.
// Only the recipient of the mail sees the link. name is the account's name. It returns a
// fault.Conflict if the address belongs to a member, or if the account has the maximum number of
// people. After too many invitations it returns fault.RateLimited. The response doesn't depend on
// whether the address has a user elsewhere.
func (u *Users) Invite(ctx context.Context, by Session, account db.ID, name, email string, r Role) error {
	key, exact, err := parseEmail(email)
	if err != nil {
		_, err = u.createInvitation(ctx, Link{Address: email, Role: r}, "") // it returns all faults
		return err
	}
	if account != by.Account && by.Account != u.OperatorAccount {
		return notAllowedError()
	}
	giveBack, err := u.reserveMail(ctx, invitationLimits(by, key)...)
	if err != nil {
		return err
	}
	token, err := u.createInvitation(ctx, Link{Kind: LinkInvite, Account: account, Address: exact, Role: r, ProvesAddress: true, Inviter: by.User.ID, InviterAccount: by.Account}, by.Role)
	if err != nil {
		return errors.Join(err, giveBack())
	}
	return u.sendLink(ctx, exact, invitationMail(u, by, name, token), token, giveBack)
}

// createInvitation creates an invitation by a user with a role in the inviting account, or by the
// command line.
func (u *Users) createInvitation(ctx context.Context, t Link, by Role) (token string, err error) {
	var bad fault.FieldErrors
	t.Email, t.Address, err = parseEmail(t.Address)
	if err := bad.Merge(err); err != nil {
		return "", err
	}
	if !t.Role.isValid() {
		bad.Add("role", "invalid", "The role is owner, member or reader.")
	}
	if err := bad.Err(); err != nil {
		return "", err
	}
	token, insert := u.newLink(t, inviteLinkTTL)
	return token, u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Run(ctx, lockOwnersQuery.With(t.Account)); err != nil {
			return err
		}
		if t.Inviter != 0 {
			if err := tx.One(ctx, lockInviterRoleQuery.With(t.InviterAccount, t.Inviter, string(by)), new(db.ID)); err != nil {
				return db.IfNoRow(err, notAllowedError())
			}
		}
		// An invitation doesn't change the role of a member.
		if member, err := db.Exists(ctx, tx, memberByEmailQuery.With(t.Account, t.Email)); member || err != nil {
			return cmp.Or[error](err, fault.New(fault.Conflict, "already_member", "%s is a member already. Change the role instead.", t.Email))
		}
		var n int64
		if err := tx.One(ctx, countMembersAndInvitesQuery.With(t.Account, db.Micros(u.Now())), &n); err != nil {
			return err
		}
		if n >= maxMembers { // more members would have access without being listed
			return fault.New(fault.Conflict, "too_many_people", "An account may have %d people, with those who are invited. Withdraw an invitation or remove somebody first.", maxMembers)
		}
		return tx.Run(ctx, insert)
	})
}

func notAllowedError() error {
	return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
}

// Invitations lists the open invitations of an account.
func (u *Users) Invitations(ctx context.Context, account db.ID) ([]Link, error) {
	return db.All(ctx, u.DB, invitationsQuery.With(account, db.Micros(u.Now()), maxMembers), scanLink)
}

// WithdrawInvitation withdraws an invitation. If it was already accepted or withdrawn, it returns a
// fault.Conflict, because somebody may have joined.
func (u *Users) WithdrawInvitation(ctx context.Context, account, id db.ID) error {
	return u.DB.ExecOrFail(ctx, withdrawInviteQuery.With(id, account),
		fault.New(fault.Conflict, "invitation_over", "This invitation is over: it was accepted or withdrawn already."))
}

// SignUp creates the user of a setup link or an invitation, as a member of its account and of more.
// A link that proves the address takes it over from a user who has not verified it: see
// UnverifiedMemberships.
func (u *Users) SignUp(ctx context.Context, token string, n CreateParams, more ...db.ID) (User, error) {
	t, err := u.FindLink(ctx, token)
	if err != nil {
		return User{}, err
	}
	if t.Kind != LinkSetup && t.Kind != LinkInvite {
		return User{}, fault.New(fault.NotFound, "link_over", "This link is for something else.")
	}
	if t.Email != "" {
		n.Email = t.Address
	}
	return u.create(ctx, n, t.ProvesAddress, func(tx *db.Tx, made User) error {
		if err := redeemLink(ctx, tx, t); err != nil {
			return err
		}
		if t.Kind == LinkInvite {
			if err := u.addMember(ctx, tx, t.Account, made.ID, t.Role); err != nil {
				return err
			}
		} else if err := u.endSetupLinks(ctx, tx, made); err != nil {
			return err
		}
		for _, a := range more {
			if err := u.addMember(ctx, tx, a, made.ID, RoleOwner); err != nil {
				return err
			}
		}
		return nil
	})
}

// endSetupLinks deletes all setup links: each start of the service without a user created one. A
// node that starts at the same moment may create another. Nobody can use that after the first user
// exists, because the deletion waits for a concurrent sign-up and then sees its user.
func (u *Users) endSetupLinks(ctx context.Context, tx *db.Tx, made User) error {
	if err := tx.Run(ctx, deleteSetupLinksQuery.With()); err != nil {
		return err
	}
	other, err := db.Exists(ctx, tx, otherUserQuery.With(made.ID))
	if err == nil && other {
		err = fault.New(fault.NotFound, "link_over", "The service has been set up already. Ask for an invitation.")
	}
	return err
}

// AcceptInvitation adds an existing user to the account of an invitation to the same address. An
// invitation that proves the address confirms it.
func (u *Users) AcceptInvitation(ctx context.Context, token string, who User) (account db.ID, err error) {
	t, err := u.FindLink(ctx, token)
	if err != nil {
		return 0, err
	}
	if t.Kind != LinkInvite || t.Email != "" && t.Email != who.Email {
		return 0, fault.New(fault.Denied, "not_yours", "This invitation is for another e-mail address.")
	}
	return t.Account, u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := redeemLink(ctx, tx, t); err != nil {
			return err
		}
		if t.ProvesAddress {
			if err := tx.Run(ctx, confirmAddressQuery.With(who.ID, t.Address, db.Micros(u.Now()))); err != nil {
				return err
			}
		}
		return u.addMember(ctx, tx, t.Account, who.ID, t.Role)
	})
}
