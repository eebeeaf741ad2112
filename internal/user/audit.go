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
	return audit.Actor{Kind: audit.ActorUser, ID: s.User.ID, Name: s.User.Email, IP: from}
}

// RecordAudit records in the audit log what the user of a session did, in the session's account.
func (u *Users) RecordAudit(ctx context.Context, s Session, from netip.Addr, what string) error {
	return u.auditLog().Write(ctx, audit.Entry{Account: s.Account, Actor: s.Actor(from), Description: what})
}

// auditSignIn records that a user signed in, in the transaction that lets him in.
func (u *Users) auditSignIn(ctx context.Context, tx *db.Tx, s Session) error {
	return u.auditLog().WriteTx(ctx, tx, audit.Entry{Account: s.Account, Actor: s.Actor(s.RemoteAddr), Description: "Signed in."})
}

func (u *Users) auditLog() *audit.Log { return &audit.Log{DB: u.DB, Now: u.Now} }

// maxFailedSignIns bounds how many failed sign-ins wait to be written.
const maxFailedSignIns = 1000

// failedSignIn is a failed sign-in that is yet to be written.
type failedSignIn struct {
	user           User
	from           netip.Addr
	action, detail string
}

// failedSignInQueue wait to be written: an answer must not take longer for an address that is
// known.
type failedSignInQueue struct {
	mu   sync.Mutex
	rows []failedSignIn
}

// The actions of failed sign-ins in the audit log. Each has a bound of its own: wrong
// passwords, which anybody can give, hide no wrong codes.
const (
	actionPasswordFailed = "sign-in"
	actionCodeFailed     = "sign-in.code"
)

// queueFailedSignIn has a failed sign-in of a user written in a moment.
func (u *Users) queueFailedSignIn(who User, from netip.Addr, action, what string) {
	u.failedSignIns.mu.Lock()
	defer u.failedSignIns.mu.Unlock()
	if len(u.failedSignIns.rows) < maxFailedSignIns {
		u.failedSignIns.rows = append(u.failedSignIns.rows, failedSignIn{who, from, action, what})
	}
}

// FlushFailedSignIns writes the failed sign-ins on this node into the activity of the accounts
// that the users belong to. The audit log bounds them.
func (u *Users) FlushFailedSignIns(ctx context.Context) error {
	u.failedSignIns.mu.Lock()
	rows := u.failedSignIns.rows
	u.failedSignIns.rows = nil
	u.failedSignIns.mu.Unlock()
	for _, r := range rows {
		of, err := u.Memberships(ctx, r.user.ID)
		if err != nil {
			return err
		}
		for _, m := range of {
			err := u.auditLog().RecordDenied(ctx, audit.Entry{Account: m.Account, Action: r.action, Object: r.user.ID.String(), Description: r.detail,
				Actor: audit.Actor{Kind: audit.ActorAnonymous, Name: r.user.Email, IP: r.from}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// RunFailedSignIns does so every few seconds until ctx ends, and once more then; report is
// told what went wrong.
func (u *Users) RunFailedSignIns(ctx context.Context, report func(error)) error {
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
		if err := u.FlushFailedSignIns(context.WithoutCancel(ctx)); err != nil {
			report(err)
		}
		if last {
			return nil
		}
	}
}

var setReadsMailQuery = db.SQL(`UPDATE dashboard_member SET reads_mail = $3 WHERE account = $1 AND person = $2`)

// SetReadsMail lets a member read mail in the dashboard, or no longer. Owners always
// may, whatever is set. One who is no member is fault.NotFound.
func (u *Users) SetReadsMail(ctx context.Context, account, person db.ID, may bool) error {
	n, err := u.DB.Exec(ctx, setReadsMailQuery.With(account, person, may))
	if err == nil && n == 0 {
		err = noMemberError()
	}
	return err
}
