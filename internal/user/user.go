// SPDX-License-Identifier: Apache-2.0

// Package user keeps the people who sign in to the dashboard: their passwords
// and second factors, the accounts that they belong to, their sessions, the
// links that let them in, and what they did.
package user

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/throttle"
)

// User is a person who signs in.
type User struct {
	ID        db.ID
	Email     string
	Name      string
	TOTP      bool // asks for a second factor
	CreatedAt time.Time
}

// Users keeps them.
type Users struct {
	DB     *db.DB
	Key    *secret.Key // seals second factors
	Hasher *credential.Hasher
	Logins *throttle.LoginLimiter // shared with other listeners
	Issuer string                 // how authenticator apps call the service
	Now    func() time.Time
}

const maxName = 200 // bytes

var (
	insertUser = db.SQL(`INSERT INTO dashboard_user (id, email, name, password, created_at) VALUES ($1, $2, $3, $4, $5)`)
	userByID   = db.SQL(`SELECT id, email, name, password, totp, created_at FROM dashboard_user WHERE id = $1`)
	byEmail    = db.SQL(`SELECT id, email, name, password, totp, created_at FROM dashboard_user WHERE email = $1`)
	anyUser    = db.SQL(`SELECT id FROM dashboard_user WHERE id > 0 ORDER BY id LIMIT 1`)
	rename     = db.SQL(`UPDATE dashboard_user SET name = $2 WHERE id = $1`)
	repassword = db.SQL(`UPDATE dashboard_user SET password = $2 WHERE id = $1 AND password = $3`)
	lockEmail  = db.SQL(`SELECT id FROM dashboard_user WHERE email = $1 {for_update}`)
	deleteUser = db.SQL(`DELETE FROM dashboard_user WHERE id = $1`)
)

// stored is a user with what proves who it is.
type stored struct {
	User
	phc  string
	totp []byte // sealed
}

func scanUser(r db.Row) (s stored, err error) {
	var created int64
	err = r.Scan(&s.ID, &s.Email, &s.Name, &s.phc, &s.totp, &created)
	s.CreatedAt, s.TOTP = db.Time(created), len(s.totp) > 0
	return s, err
}

func (u *Users) find(ctx context.Context, s db.Statement) (stored, error) {
	found, err := db.All(ctx, u.DB, s, scanUser)
	if err == nil && len(found) == 0 {
		err = fault.New(fault.NotFound, "not_found", "There is no such user.")
	}
	if err != nil {
		return stored{}, err
	}
	return found[0], nil
}

// Get finds a user, or returns fault.NotFound.
func (u *Users) Get(ctx context.Context, id db.ID) (User, error) {
	s, err := u.find(ctx, userByID.With(id))
	return s.User, err
}

// ByEmail finds a user by the address, or returns fault.NotFound.
func (u *Users) ByEmail(ctx context.Context, email string) (User, error) {
	key, err := parseEmail(email)
	if err != nil {
		return User{}, err
	}
	s, err := u.find(ctx, byEmail.With(key))
	return s.User, err
}

// Any reports whether there is a user at all.
func (u *Users) Any(ctx context.Context) (bool, error) {
	err := u.DB.One(ctx, anyUser.With(), new(db.ID))
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}

// New is a user to be.
type New struct {
	Email, Name, Password string
}

// Check returns all that is wrong with it.
func (n New) Check() error {
	_, err := n.check()
	return err
}

// check returns all that is wrong with it, and its address in the form that is
// compared.
func (n *New) check() (key string, err error) {
	var bad fault.Fields
	key, err = parseEmail(n.Email)
	if err := bad.Merge(err); err != nil {
		return "", err
	}
	n.Name = strings.TrimSpace(n.Name)
	bad = append(bad, checkName(n.Name)...)
	bad = append(bad, credential.Check("password", n.Password)...)
	return key, bad.Err()
}

func checkName(name string) (bad fault.Fields) {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		bad.Add("name", "invalid", "Give a name of at most %d bytes in one line.", maxName)
	}
	return bad
}

func parseEmail(s string) (key string, err error) {
	a, err := address.Parse(strings.TrimSpace(s))
	if err != nil {
		var bad fault.Fields
		bad.Add("email", "invalid", "Give an e-mail address such as you@example.com.")
		return "", bad.Err()
	}
	return a.Key(), nil
}

// create makes a user and what follows from that in one commit. An address of
// somebody who belongs to an account is a fault.Conflict.
func (u *Users) create(ctx context.Context, n New, also func(tx *db.Tx, made User) error) (User, error) {
	key, err := n.check()
	if err != nil {
		return User{}, err
	}
	phc, err := u.Hasher.Hash(ctx, n.Password)
	if err != nil {
		return User{}, err
	}
	made := User{ID: u.DB.NewID(), Email: key, Name: n.Name, CreatedAt: u.Now().UTC()}
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := forget(ctx, tx, made.Email); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertUser.With(made.ID, made.Email, made.Name, phc, db.Micros(made.CreatedAt))); err != nil {
			return err
		}
		return also(tx, made)
	})
	if u.DB.IsConflict(err) {
		return User{}, fault.New(fault.Conflict, "email_taken", "Somebody with this e-mail address is here already: sign in instead.")
	}
	return made, err
}

// forget deletes the user of an address who belongs to no account any more: who
// can't sign in could accept no other invitation.
func forget(ctx context.Context, tx *db.Tx, email string) error {
	var id db.ID
	err := tx.One(ctx, lockEmail.With(email), &id)
	if errors.Is(err, db.ErrNoRow) {
		return nil
	}
	if err == nil {
		err = tx.One(ctx, memberships.With(id, 1), new(db.ID), new(string))
	}
	if !errors.Is(err, db.ErrNoRow) {
		return err
	}
	if err := shutOut(ctx, tx, id, 0); err != nil {
		return err
	}
	for _, q := range []*db.Query{clearRecovery, deleteUser} {
		if _, err := tx.Exec(ctx, q.With(id)); err != nil {
			return err
		}
	}
	return nil
}

// Create makes a user who belongs to accounts as their owner. It asks nobody
// for permission.
func (u *Users) Create(ctx context.Context, n New, accounts ...db.ID) (User, error) {
	return u.create(ctx, n, func(tx *db.Tx, made User) error {
		for _, a := range slices.Compact(accounts) {
			if err := u.join(ctx, tx, a, made.ID, Owner); err != nil {
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
	_, err := u.DB.Exec(ctx, rename.With(id, name))
	return err
}

// ChangePassword sets a new password for whoever knows the old one, and ends
// all other sessions of the user. A wrong one is a fault of the field
// "current"; guessing is limited like signing in.
func (u *Users) ChangePassword(ctx context.Context, in Session, current, password string) error {
	s, err := u.find(ctx, userByID.With(in.User.ID))
	if err != nil {
		return err
	}
	ok, err := u.verify(ctx, s, current, in.From)
	if err != nil {
		return err
	}
	var bad fault.Fields
	if !ok {
		bad.Add("current", "wrong", "This is not your present password.")
	}
	bad = append(bad, credential.Check("password", password)...)
	if err := bad.Err(); err != nil {
		return err
	}
	phc, err := u.Hasher.Hash(ctx, password)
	if err != nil {
		return err
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, repassword.With(s.ID, phc, s.phc))
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "password_changed", "The password was changed meanwhile.")
		}
		if err != nil {
			return err
		}
		return shutOut(ctx, tx, s.ID, in.ID)
	})
}
