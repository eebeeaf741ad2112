// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Role is a user's role in an account.
type Role string

// The roles: an owner may do everything; a member everything except managing people and API keys of
// the account; a reader may only view.
const (
	RoleOwner  Role = "owner"
	RoleMember Role = "member"
	RoleReader Role = "reader"
)

// isValid reports whether r is one of the roles.
func (r Role) isValid() bool { return r == RoleOwner || r == RoleMember || r == RoleReader }

// Member is a user of an account.
type Member struct {
	User
	Role      Role
	ReadsMail bool // may read mail; always true for owners
	JoinedAt  time.Time
}

// Membership is an account that a user belongs to.
type Membership struct {
	Account db.ID
	Role    Role
}

// maxMembers is the maximum number of people in an account, including invitations.
const maxMembers = 200

var (
	insertMemberQuery = db.SQL(`INSERT INTO dashboard_member (account, person, role, created_at, reads_mail) VALUES ($1, $2, $3, $4, $3 <> 'reader')
		ON CONFLICT (account, person) DO NOTHING`)
	membersQuery = db.SQL(`SELECT ` + userColumns + `, m.role, m.created_at, m.reads_mail
		FROM dashboard_member m JOIN dashboard_user u ON u.id = m.person WHERE m.account = $1 ORDER BY m.person LIMIT $2`)
	// The addresses of an account's owners.
	ownerEmailsQuery = db.SQL(`SELECT u.address FROM dashboard_member m JOIN dashboard_user u ON u.id = m.person
		WHERE m.account = $1 AND m.role = 'owner' AND u.verified_at > 0 ORDER BY m.person LIMIT $2`)
	memberByEmailQuery = db.SQL(`SELECT u.id FROM dashboard_user u JOIN dashboard_member m ON m.person = u.id
		WHERE u.email = $2 AND m.account = $1`)
	membershipsQuery = db.SQL(`SELECT account, role FROM dashboard_member WHERE person = $1 ORDER BY account LIMIT $2`)
	roleQuery        = db.SQL(`SELECT role FROM dashboard_member WHERE account = $1 AND person = $2`)
	setRoleQuery     = db.SQL(`UPDATE dashboard_member SET role = $3,
		reads_mail = CASE WHEN role = $3 THEN reads_mail ELSE $3 <> 'reader' END WHERE account = $1 AND person = $2`)
	// lockOwnersQuery serializes changes of an account's owners.
	lockOwnersQuery   = db.SQL(`UPDATE dashboard_member SET role = role WHERE account = $1 AND role = 'owner'`)
	deleteMemberQuery = db.SQL(`DELETE FROM dashboard_member WHERE account = $1 AND person = $2`)
	countOwnersQuery  = db.SQL(`SELECT COUNT(*) FROM dashboard_member WHERE account = $1 AND role = 'owner'`)
)

func (u *Users) addMember(ctx context.Context, tx *db.Tx, account, person db.ID, r Role) error {
	return tx.Run(ctx, insertMemberQuery.With(account, person, string(r), db.Micros(u.Now())))
}

// Members lists the people of an account, oldest first.
func (u *Users) Members(ctx context.Context, account db.ID) ([]Member, error) {
	return db.All(ctx, u.DB, membersQuery.With(account, maxMembers), func(r db.Row) (m Member, err error) {
		_, err = m.scan(r, (*string)(&m.Role), db.TimeScanner(&m.JoinedAt), &m.ReadsMail)
		m.ReadsMail = m.ReadsMail || m.Role == RoleOwner
		return m, err
	})
}

// OwnerAddresses returns the verified addresses of an account's owners, oldest owner first.
func OwnerAddresses(ctx context.Context, r db.Reader, account db.ID) ([]address.Address, error) {
	return db.All(ctx, r, ownerEmailsQuery.With(account, maxMembers), func(r db.Row) (a address.Address, err error) {
		var email string
		if err = r.Scan(&email); err == nil {
			a, err = address.Parse(email)
		}
		return a, err
	})
}

// Memberships lists the accounts of a user.
func (u *Users) Memberships(ctx context.Context, id db.ID) ([]Membership, error) {
	return db.All(ctx, u.DB, membershipsQuery.With(id, maxMembers), scanMembership)
}

func scanMembership(r db.Row) (m Membership, err error) {
	return m, r.Scan(&m.Account, (*string)(&m.Role))
}

// SetRole changes a member's role. A new role starts with its default: all except readers may read
// mail. The open invitations of a former owner end. The last owner must stay an owner:
// fault.Conflict.
func (u *Users) SetRole(ctx context.Context, account, person db.ID, r Role) error {
	if !r.isValid() {
		var bad fault.FieldErrors
		bad.Add("role", "invalid", "The role is owner, member or reader.")
		return bad.Err()
	}
	var also []db.Statement
	if r != RoleOwner {
		also = append(also, deleteInvitesByQuery.With(person, account))
	}
	return u.changeMember(ctx, account, setRoleQuery.With(account, person, string(r)), also...)
}

// RemoveMember ends a membership, the sessions that show the account, and the open invitations for
// or by the member. The last owner can't be removed: fault.Conflict.
func (u *Users) RemoveMember(ctx context.Context, account, person db.ID) error {
	return u.changeMember(ctx, account, deleteMemberQuery.With(account, person), deleteSessionsInAccountQuery.With(person, account), deleteInvitesToQuery.With(person, account), deleteInvitesByQuery.With(person, account))
}

func noMemberError() error { return fault.New(fault.NotFound, "not_found", "There is no such member.") }

// changeMember changes one member, unless no owner would be left.
func (u *Users) changeMember(ctx context.Context, account db.ID, change db.Statement, also ...db.Statement) error {
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Run(ctx, lockOwnersQuery.With(account)); err != nil {
			return err
		}
		if err := tx.ExecOrFail(ctx, change, noMemberError()); err != nil {
			return err
		}
		var left int64
		if err := tx.One(ctx, countOwnersQuery.With(account), &left); err != nil {
			return err
		}
		if left == 0 {
			return fault.New(fault.Conflict, "last_owner", "An account needs an owner: make somebody else one first.")
		}
		return tx.Run(ctx, also...)
	})
}
