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

// Actor returns the session's user for the audit log.
func (s Session) Actor(from netip.Addr) audit.Actor {
	return audit.Actor{Kind: audit.ActorUser, ID: s.User.ID, Name: s.User.Email, IP: from}
}

// RecordAudit records in the audit log what the session's user did, in the session's account.
func (u *Users) RecordAudit(ctx context.Context, s Session, from netip.Addr, what string) error {
	return u.auditLog().Write(ctx, audit.Entry{Account: s.Account, Actor: s.Actor(from), Description: what})
}

// auditSignIn records a sign-in of a user, in the transaction that completes it.
func (u *Users) auditSignIn(ctx context.Context, tx *db.Tx, s Session) error {
	return u.auditLog().WriteTx(ctx, tx, audit.Entry{Account: s.Account, Actor: s.Actor(s.RemoteAddr), Description: "Signed in."})
}

func (u *Users) auditLog() *audit.Log { return &audit.Log{DB: u.DB, Now: u.Now} }

// maxFailedSignIns is the maximum number of failed sign-ins that wait to be written.
const maxFailedSignIns = 1000

// failedSignIn is a failed sign-in that is not written yet.
type failedSignIn struct {
	user           User
	from           netip.Addr
	action, detail string
}

// failedSignInQueue holds failed sign-ins until they are written. They are written later, so that
// the response takes no longer if the address is known.
type failedSignInQueue struct {
	mu   sync.Mutex
	rows []failedSignIn
}

// The actions of failed sign-ins in the audit log. Each has a limit of its own, so that wrong
// passwords, which anybody can send, don't displace wrong codes.
const (
	actionPasswordFailed = "sign-in"
	actionCodeFailed     = "sign-in.code"
)

// queueFailedSignIn queues a failed sign-in of a user to be written soon.
func (u *Users) queueFailedSignIn(who User, from netip.Addr, action, what string) {
	u.failedSignIns.mu.Lock()
	defer u.failedSignIns.mu.Unlock()
	if len(u.failedSignIns.rows) < maxFailedSignIns {
		u.failedSignIns.rows = append(u.failedSignIns.rows, failedSignIn{who, from, action, what})
	}
}

// FlushFailedSignIns writes this node's failed sign-ins to the audit logs of the users' accounts.
// The audit log limits them.
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

// RunFailedSignInFlusher calls FlushFailedSignIns every few seconds until ctx ends, and once more
// then. It passes errors to report.
func (u *Users) RunFailedSignInFlusher(ctx context.Context, report func(error)) error {
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

// SetReadsMail sets whether a member may read mail in the dashboard. Owners always may. It returns
// fault.NotFound if the user is no member.
func (u *Users) SetReadsMail(ctx context.Context, account, person db.ID, may bool) error {
	return u.DB.ExecOrFail(ctx, setReadsMailQuery.With(account, person, may), noMemberError())
}
