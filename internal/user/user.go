// SPDX-License-Identifier: Apache-2.0

// Package user manages the people who sign in to the dashboard: their passwords and second factors,
// memberships in accounts, sessions, links, and audit log entries.
package user

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/secret"
)

// User is a person who can sign in.
type User struct {
	ID        db.ID
	Email     string // address for comparison: address.PersonKey
	Address   string // address as given, for sending mail
	Name      string
	TOTP      bool // has a second factor
	CreatedAt time.Time
	// VerifiedAt is when the user verified the address with a link that was sent by mail; zero: not
	// yet. Another person can take over an unverified address by verifying it.
	VerifiedAt time.Time
}

// Verified reports whether the user has verified the address.
func (u User) Verified() bool { return !u.VerifiedAt.IsZero() }

// Users creates, finds and authenticates users.
type Users struct {
	DB       *db.DB
	Key      *secret.Key // seals second factors
	Hasher   *credential.Hasher
	Logins   *ratelimit.LoginLimiter // shared with other listeners
	Issuer   string                  // the service's name in authenticator apps: its host name
	BaseURL  string                  // base URL of the dashboard's pages, without a trailing slash
	SendMail MailFunc
	// OperatorAccount is the operators' account. Verifying an address never gives a membership of
	// it.
	OperatorAccount db.ID
	Now             func() time.Time

	failedSignIns failedSignInQueue
}

const maxName = 200 // bytes

// userColumns are the columns that User.scan reads.
const userColumns = `u.id, u.email, u.address, u.name, u.totp, u.created_at, u.verified_at`

var (
	insertUserQuery     = db.SQL(`INSERT INTO dashboard_user (id, email, address, name, password, created_at, verified_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`)
	userByIDQuery       = db.SQL(`SELECT ` + userColumns + `, password FROM dashboard_user u WHERE id = $1`)
	userByEmailQuery    = db.SQL(`SELECT ` + userColumns + `, password FROM dashboard_user u WHERE email = $1`)
	anyUserQuery        = db.SQL(`SELECT id FROM dashboard_user WHERE id > 0 ORDER BY id LIMIT 1`)
	renameQuery         = db.SQL(`UPDATE dashboard_user SET name = $2 WHERE id = $1`)
	changePasswordQuery = db.SQL(`UPDATE dashboard_user SET password = $2 WHERE id = $1 AND password = $3`)
	lockEmailQuery      = db.SQL(`SELECT id, name, verified_at FROM dashboard_user WHERE email = $1 {for_update}`)
	deleteUserQuery     = db.SQL(`DELETE FROM dashboard_user WHERE id = $1`)
)

// storedUser is a user with the stored credentials.
type storedUser struct {
	User
	phc  string
	totp []byte // sealed
}

func scanUser(r db.Row) (s storedUser, err error) {
	s.totp, err = s.scan(r, &s.phc)
	return s, err
}

// scan reads a row of userColumns and more. It returns the sealed second factor.
func (u *User) scan(r db.Row, more ...any) (totp []byte, err error) {
	err = r.Scan(append([]any{&u.ID, &u.Email, &u.Address, &u.Name, &totp, db.TimeScanner(&u.CreatedAt), db.TimeScanner(&u.VerifiedAt)}, more...)...)
	u.TOTP = len(totp) > 0
	return totp, err
}

func (u *Users) findUser(ctx context.Context, s db.Statement) (storedUser, error) {
	return db.Find(ctx, u.DB, s, fault.New(fault.NotFound, "not_found", "There is no such user."), scanUser)
}

// Get returns a user, or fault.NotFound.
func (u *Users) Get(ctx context.Context, id db.ID) (User, error) {
	s, err := u.findUser(ctx, userByIDQuery.With(id))
	return s.User, err
}

// ByEmail returns the user with an address, or fault.NotFound.
func (u *Users) ByEmail(ctx context.Context, email string) (User, error) {
	key, _, err := parseEmail(email)
	if err != nil {
		return User{}, err
	}
	s, err := u.findUser(ctx, userByEmailQuery.With(key))
	return s.User, err
}

// HasUsers reports whether there is any user.
func (u *Users) HasUsers(ctx context.Context) (bool, error) {
	return db.Exists(ctx, u.DB, anyUserQuery.With())
}

// CreateParams are the parameters of a new user.
type CreateParams struct {
	Email, Name, Password string
	// KeepMemberships says, for each account of an unverified user with the same address, whether
	// to keep the membership: see Users.UnverifiedMemberships.
	KeepMemberships map[db.ID]bool

	emailKey string // Email in the form for comparison
}

// Check validates the parameters and returns all faults.
func (n CreateParams) Check() error { return n.check() }

// check validates the parameters, returns all faults, and sets emailKey.
func (n *CreateParams) check() (err error) {
	var bad fault.FieldErrors
	n.emailKey, n.Email, err = parseEmail(n.Email)
	if err := bad.Merge(err); err != nil {
		return err
	}
	n.Name = strings.TrimSpace(n.Name)
	bad = append(bad, checkName(n.Name)...)
	bad = append(bad, credential.CheckNewPassword("password", n.Password)...)
	return bad.Err()
}

func checkName(name string) (bad fault.FieldErrors) {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		bad.Add("name", "invalid", "Give a name of at most %d bytes in one line.", maxName)
	}
	return bad
}

// parseEmail returns an address in the form for comparison, and in the form for sending.
func parseEmail(s string) (key, exact string, err error) {
	a, err := address.Parse(strings.TrimSpace(s))
	if err != nil || strings.HasPrefix(a.Local, `"`) { // a quoted local part may contain any text, such as a link
		var bad fault.FieldErrors
		bad.Add("email", "invalid", "Give an e-mail address such as you@example.com.")
		return "", "", bad.Err()
	}
	return a.PersonKey(), a.String(), nil
}

// create creates a user and runs also in the same commit. A proven address is taken over from a
// user who has not verified it. It returns a fault.Conflict if any other user with this address
// belongs to an account.
func (u *Users) create(ctx context.Context, n CreateParams, proven bool, also func(tx *db.Tx, made User) error) (User, error) {
	if err := n.check(); err != nil {
		return User{}, err
	}
	phc, err := u.Hasher.Hash(ctx, credential.Requester{Target: n.emailKey}, n.Password)
	if err != nil {
		return User{}, err
	}
	now := u.Now().UTC()
	var made User
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		made = User{ID: u.DB.NewID(), Email: n.emailKey, Address: n.Email, Name: n.Name, CreatedAt: now}
		if proven {
			made.VerifiedAt = now
		}
		there, free, err := u.deleteUserWithoutAccount(ctx, tx, n.emailKey)
		switch {
		case err != nil:
		case free:
			err = tx.Run(ctx, insertUserQuery.With(made.ID, made.Email, made.Address, made.Name, phc, db.Micros(now), db.Micros(made.VerifiedAt)))
		case proven && !there.Verified():
			made.ID = there.ID
			err = u.takeOverAddress(ctx, tx, made, phc, n.KeepMemberships)
		default:
			err = fault.New(fault.Conflict, "email_taken", "Somebody with this e-mail address is here already: sign in instead.")
		}
		if err != nil {
			return err
		}
		return also(tx, made)
	})
	if u.DB.IsConflict(err) { // of concurrent attempts, one succeeds
		err = fault.New(fault.Conflict, "email_taken", "Somebody with this e-mail address is here already: sign in instead.")
	}
	return made, err
}

// lockByEmail finds and locks the user of an address for a change; false if there is none.
func (u *Users) lockByEmail(ctx context.Context, tx *db.Tx, key string) (who User, ok bool, err error) {
	who.Email = key
	err = tx.One(ctx, lockEmailQuery.With(key), &who.ID, &who.Name, db.TimeScanner(&who.VerifiedAt))
	return who, err == nil, db.IfNoRow(err, nil)
}

// deleteUserWithoutAccount deletes the user of an address who belongs to no account any more;
// without an account that user can't sign in, and so accepts no other invitation. It reports
// whether the address is free, or else returns its user.
func (u *Users) deleteUserWithoutAccount(ctx context.Context, tx *db.Tx, key string) (there User, free bool, err error) {
	there, ok, err := u.lockByEmail(ctx, tx, key)
	if err != nil || !ok {
		return there, !ok, err
	}
	if used, err := db.Exists(ctx, tx, membershipsQuery.With(there.ID, 1)); used || err != nil {
		return there, false, err
	}
	if err := u.revokeAccess(ctx, tx, there.ID, 0); err != nil {
		return there, false, err
	}
	return there, true, tx.Run(ctx, clearRecoveryQuery.With(there.ID), deleteUserQuery.With(there.ID))
}

// Create creates a user as the owner of accounts. It checks no permission, and treats the address
// as verified.
func (u *Users) Create(ctx context.Context, n CreateParams, accounts ...db.ID) (User, error) {
	return u.create(ctx, n, true, func(tx *db.Tx, made User) error {
		for _, a := range slices.Compact(accounts) {
			if err := u.addMember(ctx, tx, a, made.ID, RoleOwner); err != nil {
				return err
			}
		}
		return nil
	})
}

// Rename changes a user's name.
func (u *Users) Rename(ctx context.Context, id db.ID, name string) error {
	name = strings.TrimSpace(name)
	if err := checkName(name).Err(); err != nil {
		return err
	}
	return u.DB.Run(ctx, renameQuery.With(id, name))
}

// ChangePassword changes the password of a user who gives the current one, and ends all other
// sessions of the user. A wrong password is a fault of the field "current"; attempts are limited
// like sign-ins.
func (u *Users) ChangePassword(ctx context.Context, in Session, current, password string) error {
	s, err := u.findUser(ctx, userByIDQuery.With(in.User.ID))
	if err != nil {
		return err
	}
	ok, err := u.verifyPassword(ctx, s, current, in.RemoteAddr)
	if err != nil {
		return err
	}
	var bad fault.FieldErrors
	if !ok {
		bad.Add("current", "wrong", "This is not your present password.")
	}
	bad = append(bad, credential.CheckNewPassword("password", password)...)
	if err := bad.Err(); err != nil {
		return err
	}
	phc, err := u.Hasher.Hash(ctx, u.requester(s.Email, in.RemoteAddr), password)
	if err != nil {
		return err
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		changed := fault.New(fault.Conflict, "password_changed", "The password was changed meanwhile.")
		if err := tx.ExecOrFail(ctx, changePasswordQuery.With(s.ID, phc, s.phc), changed); err != nil {
			return err
		}
		return u.revokeAccess(ctx, tx, s.ID, in.ID)
	})
}
