// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
)

// Actor is the user of a session as the audit log names it.
func (s Session) Actor(from netip.Addr) audit.Actor {
	return audit.Actor{Kind: audit.User, ID: s.User.ID, Name: s.User.Email, From: from}
}

// Note records in the audit log what the user of a session did, in the session's account.
func (u *Users) Note(ctx context.Context, s Session, from netip.Addr, what string) error {
	return u.audit().Write(ctx, audit.Entry{Account: s.Account, Actor: s.Actor(from), What: what})
}

// noteSignIn records that a user signed in, in the transaction that lets him in.
func (u *Users) noteSignIn(ctx context.Context, tx *db.Tx, s Session) error {
	return u.audit().WriteIn(ctx, tx, audit.Entry{Account: s.Account, Actor: s.Actor(s.From), What: "Signed in."})
}

func (u *Users) audit() *audit.Log { return &audit.Log{DB: u.DB, Now: u.Now} }

// maxRefusals bounds how many failed sign-ins wait to be written.
const maxRefusals = 1000

// refusal is a failed sign-in that is yet to be written.
type refusal struct {
	who          User
	from         netip.Addr
	action, what string
}

// refusals wait to be written: an answer must not take longer for an address that is
// known.
type refusals struct {
	mu   sync.Mutex
	rows []refusal
}

// The actions of failed sign-ins in the audit log. Each has a bound of its own: wrong
// passwords, which anybody can give, hide no wrong codes.
const (
	passwordRefused = "sign-in"
	codeRefused     = "sign-in.code"
)

// refused has a failed sign-in of a user written in a moment.
func (u *Users) refused(who User, from netip.Addr, action, what string) {
	u.refusals.mu.Lock()
	defer u.refusals.mu.Unlock()
	if len(u.refusals.rows) < maxRefusals {
		u.refusals.rows = append(u.refusals.rows, refusal{who, from, action, what})
	}
}

// NoteRefused writes the failed sign-ins on this node into the activity of the accounts
// that the users belong to. The audit log bounds them.
func (u *Users) NoteRefused(ctx context.Context) error {
	u.refusals.mu.Lock()
	rows := u.refusals.rows
	u.refusals.rows = nil
	u.refusals.mu.Unlock()
	for _, r := range rows {
		of, err := u.Memberships(ctx, r.who.ID)
		if err != nil {
			return err
		}
		for _, m := range of {
			err := u.audit().Denied(ctx, audit.Entry{Account: m.Account, Action: r.action, Object: r.who.ID.String(), What: r.what,
				Actor: audit.Actor{Kind: audit.Nobody, Name: r.who.Email, From: r.from}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// RunRefused does so every few seconds until ctx ends, and once more then; report is
// told what went wrong.
func (u *Users) RunRefused(ctx context.Context, report func(error)) error {
	const every = 2 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		last := false
		select {
		case <-tick.C:
		case <-ctx.Done():
			last = true
		}
		if err := u.NoteRefused(context.WithoutCancel(ctx)); err != nil {
			report(err)
		}
		if last {
			return nil
		}
	}
}

var setReadsMail = db.SQL(`UPDATE dashboard_member SET reads_mail = $3 WHERE account = $1 AND person = $2`)

// SetReadsMail lets a member read mail in the dashboard, or no longer. Owners always
// may, whatever is set. One who is no member is fault.NotFound.
func (u *Users) SetReadsMail(ctx context.Context, account, person db.ID, may bool) error {
	n, err := u.DB.Exec(ctx, setReadsMail.With(account, person, may))
	if err == nil && n == 0 {
		err = errNoMember()
	}
	return err
}
