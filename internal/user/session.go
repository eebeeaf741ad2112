// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/secret"
)

// Session is the session of a user who has signed in with a browser.
type Session struct {
	ID                db.ID
	User              User
	Account           db.ID // the account that the session shows
	Role              Role  // the user's role in that account
	ReadsMail         bool  // whether the user may read mail there
	NeedsSecondFactor bool  // the second factor is still required; show nothing before

	RemoteAddr netip.Addr // address at sign-in
	UserAgent  string
	CreatedAt  time.Time
	SeenAt     time.Time
	ExpiresAt  time.Time
}

const (
	sessionTokenPrefix  = "mss_"
	sessionMaxAge       = 30 * 24 * time.Hour
	sessionIdleTimeout  = 14 * 24 * time.Hour
	secondFactorTimeout = 10 * time.Minute
	seenInterval        = 5 * time.Minute // precision of a session's last use
	maxSessions         = 50              // of one user; the oldest end
	maxUserAgent        = 300             // bytes
)

const sessionColumns = `, s.id, s.account, s.halfway, s.address, s.agent, s.created_at, s.seen_at, s.expires_at`

var (
	insertSessionQuery = db.SQL(`INSERT INTO dashboard_session (id, hash, person, account, halfway, address, agent, created_at, seen_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)`)
	passwordUnchangedQuery = db.SQL(`SELECT id FROM dashboard_user WHERE id = $1 AND password = $2 {for_update}`)
	sessionByHashQuery     = db.SQL(`SELECT ` + userColumns + sessionColumns + `, COALESCE(m.role, ''), COALESCE(m.reads_mail OR m.role = 'owner', FALSE)
		FROM dashboard_session s JOIN dashboard_user u ON u.id = s.person
			LEFT JOIN dashboard_member m ON m.account = s.account AND m.person = s.person
		WHERE s.hash = $1 AND s.expires_at > $2`)
	userSessionsQuery = db.SQL(`SELECT ` + userColumns + sessionColumns + `, '', FALSE
		FROM dashboard_session s JOIN dashboard_user u ON u.id = s.person
		WHERE s.person >= $1 AND s.person <= $1 AND s.expires_at > $2 ORDER BY s.person DESC, s.id DESC LIMIT $3`)
	sessionCurrentQuery = db.SQL(`SELECT s.id FROM dashboard_session s JOIN dashboard_member m ON m.person = s.person
		WHERE s.id = $1 AND s.expires_at > $2 AND m.account = $3 AND m.role = $4 AND (m.reads_mail OR m.role = 'owner' OR NOT $5)`)
	touchSessionQuery = db.SQL(`UPDATE dashboard_session SET seen_at = $2,
		expires_at = CASE WHEN created_at + $4 < $3 THEN created_at + $4 ELSE $3 END WHERE id = $1 AND halfway = 0`)
	completeSessionQuery         = db.SQL(`UPDATE dashboard_session SET halfway = 0, expires_at = $2 WHERE id = $1 AND halfway = 1`)
	setSessionAccountQuery       = db.SQL(`UPDATE dashboard_session SET account = $3 WHERE id = $1 AND person = $2`)
	deleteSessionQuery           = db.SQL(`DELETE FROM dashboard_session WHERE id = $1 AND person = $2`)
	deleteOtherSessionsQuery     = db.SQL(`DELETE FROM dashboard_session WHERE person = $1 AND id <> $2`)
	deleteSessionsInAccountQuery = db.SQL(`DELETE FROM dashboard_session WHERE person = $1 AND account = $2`)
	deleteOldestSessionsQuery    = db.SQL(`DELETE FROM dashboard_session WHERE person = $1 AND id NOT IN (SELECT id FROM dashboard_session WHERE person = $1 ORDER BY id DESC LIMIT $2)`)
	pruneSessionsQuery           = db.SQL(`DELETE FROM dashboard_session WHERE id IN (SELECT id FROM dashboard_session WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`)
)

func signedOutError() error { return fault.New(fault.Unauthenticated, "signed_out", "Please sign in.") }

// wrongCredentialsError is the same for an unknown address and a wrong password.
func wrongCredentialsError() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "The e-mail address or the password is wrong.")
}

// SignIn creates a session and returns its token, of which only a hash is stored. Wrong credentials
// are fault.Unauthenticated and take as long whether or not the address is known; too many attempts
// are fault.RateLimited. For a user with a second factor the session has NeedsSecondFactor set
// until VerifySecondFactor succeeds.
func (u *Users) SignIn(ctx context.Context, email, password string, from netip.Addr, agent string) (Session, string, error) {
	key, _, err := parseEmail(email)
	if err != nil {
		key = ""
	}
	s, err := u.findUser(ctx, userByEmailQuery.With(key))
	unknown := fault.Is(err, fault.NotFound)
	if err != nil && !unknown {
		return Session{}, "", err
	}
	ok := false
	if unknown {
		who := u.Logins.HashedCredential("user", key)
		_, err = u.Logins.Try(ctx, from, password, []ratelimit.Credential{who}, func([]ratelimit.Credential) (ratelimit.Credential, error) {
			return "", u.Hasher.VerifyDummy(ctx, u.requester(key, from), password)
		})
	} else {
		ok, err = u.verifyPassword(ctx, s, password, from)
		if err == nil && !ok {
			u.queueFailedSignIn(s.User, from, actionPasswordFailed, "Failed to sign in: wrong password.")
		}
	}
	if err == nil && !ok {
		err = wrongCredentialsError()
	}
	if err != nil {
		return Session{}, "", err
	}
	return u.createSession(ctx, s, from, agent)
}

// requester identifies a client that has a password of an address verified.
func (u *Users) requester(email string, from netip.Addr) credential.Requester {
	return credential.Requester{Networks: u.Logins.Networks(from), Target: email}
}

// verifyPassword reports whether the password is the user's. Too many attempts are
// fault.RateLimited.
func (u *Users) verifyPassword(ctx context.Context, s storedUser, password string, from netip.Addr) (bool, error) {
	who := credentialOf("user", s.ID)
	right, err := u.Logins.Try(ctx, from, password, []ratelimit.Credential{who}, func([]ratelimit.Credential) (ratelimit.Credential, error) {
		ok, err := u.Hasher.Verify(ctx, u.requester(s.Email, from), int64(s.ID), s.phc, password)
		if !ok {
			return "", err
		}
		return who, err
	})
	return right == who, err
}

// ChargeMailRequest charges a request for a mail to the limits of the address and of the client's
// networks. Over a limit it returns fault.RateLimited.
func (u *Users) ChargeMailRequest(ctx context.Context, email string, from netip.Addr) error {
	if key, _, err := parseEmail(email); err == nil { // in any spelling
		email = key
	}
	if u.Logins.Exempt != nil && u.Logins.Exempt(from) {
		return nil
	}
	_, err := u.Logins.Take(ctx, ratelimit.Limit{Credential: "reset", Client: from, Burst: 10, Interval: 6 * time.Minute},
		ratelimit.Limit{Credential: "reset", Client: from, WideNetwork: true, Burst: 40, Interval: 90 * time.Second},
		ratelimit.Limit{Credential: u.Logins.HashedCredential("reset", email), Burst: 5, Interval: 12 * time.Minute})
	return err
}

// createSession creates a session for a user whose password was verified. Its account is the first
// one of the user. If the password was changed meanwhile, it returns the fault for a wrong
// password: the change ends all existing sessions, and this transaction waits for it.
func (u *Users) createSession(ctx context.Context, known storedUser, from netip.Addr, agent string) (Session, string, error) {
	who := known.User
	of, err := u.Memberships(ctx, who.ID)
	if err != nil {
		return Session{}, "", err
	}
	if len(of) == 0 {
		return Session{}, "", fault.New(fault.Denied, "no_account", "You belong to no account any more. Ask who invited you.")
	}
	now := u.Now().UTC()
	s := Session{ID: u.DB.NewID(), User: who, Account: of[len(of)-1].Account, Role: of[len(of)-1].Role, NeedsSecondFactor: who.TOTP, RemoteAddr: from, UserAgent: db.CleanText(agent, maxUserAgent), CreatedAt: now, SeenAt: now}
	s.ExpiresAt = now.Add(sessionIdleTimeout)
	if s.NeedsSecondFactor {
		s.ExpiresAt = now.Add(secondFactorTimeout)
	}
	token := secret.NewToken(sessionTokenPrefix, 32)
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.One(ctx, passwordUnchangedQuery.With(who.ID, known.phc), new(db.ID)); err != nil {
			return db.IfNoRow(err, wrongCredentialsError())
		}
		err := tx.Run(ctx, insertSessionQuery.With(s.ID, secret.HashToken(token), who.ID, s.Account, boolToInt(s.NeedsSecondFactor), from.String(), s.UserAgent, db.Micros(now), db.Micros(s.ExpiresAt)), deleteOldestSessionsQuery.With(who.ID, maxSessions))
		if err != nil || s.NeedsSecondFactor {
			return err
		}
		return u.auditSignIn(ctx, tx, s)
	})
	return s, token, err
}

// FindSession returns the session of a token. It returns fault.Unauthenticated if the token is
// invalid, the session has ended, or the user has left the session's account.
func (u *Users) FindSession(ctx context.Context, token string) (Session, error) {
	if !secret.IsWellFormedToken(sessionTokenPrefix, token) {
		return Session{}, signedOutError()
	}
	now := u.Now()
	s, err := db.Find(ctx, u.DB, sessionByHashQuery.With(secret.HashToken(token), db.Micros(now)), signedOutError(), scanSession)
	if err != nil {
		return Session{}, err
	}
	if !s.Role.isValid() {
		return Session{}, signedOutError()
	}
	if !s.NeedsSecondFactor && now.Sub(s.SeenAt) >= seenInterval {
		// If this fails, for example on a full disk, people can still view pages.
		_, _ = u.DB.Exec(ctx, touchSessionQuery.With(s.ID, db.Micros(now), db.Micros(now.Add(sessionIdleTimeout)), sessionMaxAge.Microseconds()))
	}
	return s, nil
}

// CheckSession returns fault.Unauthenticated if the session has ended, or if the user has left its
// account, has another role there, or may no longer read mail.
func (u *Users) CheckSession(ctx context.Context, s Session) error {
	err := u.DB.One(ctx, sessionCurrentQuery.With(s.ID, db.Micros(u.Now()), s.Account, string(s.Role), s.ReadsMail), new(db.ID))
	return db.IfNoRow(err, signedOutError())
}

// Sessions lists the sessions of a user, latest first.
func (u *Users) Sessions(ctx context.Context, id db.ID) ([]Session, error) {
	return db.All(ctx, u.DB, userSessionsQuery.With(id, db.Micros(u.Now()), maxSessions), scanSession)
}

// SignOut ends a session of the user.
func (u *Users) SignOut(ctx context.Context, who, session db.ID) error {
	return u.DB.Run(ctx, deleteSessionQuery.With(session, who))
}

// SignOutOthers ends all sessions of the user except one.
func (u *Users) SignOutOthers(ctx context.Context, who, but db.ID) error {
	return u.DB.Run(ctx, deleteOtherSessionsQuery.With(who, but))
}

// SwitchAccount changes the account that a session shows. If the user is no member of it, it
// returns fault.NotFound.
func (u *Users) SwitchAccount(ctx context.Context, s Session, account db.ID) error {
	if err := u.DB.One(ctx, roleQuery.With(account, s.User.ID), new(string)); err != nil {
		return db.IfNoRow(err, fault.New(fault.NotFound, "not_found", "You belong to no such account."))
	}
	return u.DB.Run(ctx, setSessionAccountQuery.With(s.ID, s.User.ID, account))
}

// PruneSessions deletes sessions and links that have ended, for a retention.Task.
func (u *Users) PruneSessions(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		n = 0
		for _, q := range []*db.Query{pruneSessionsQuery, pruneLinksQuery, pruneMailCountsQuery} {
			gone, err := tx.Exec(ctx, q.With(db.Micros(before), limit))
			if err != nil {
				return err
			}
			n += int(gone)
		}
		return nil
	})
	return n, err
}

func scanSession(r db.Row) (s Session, err error) {
	var halfway int64
	var from string
	_, err = s.User.scan(r, &s.ID, &s.Account, &halfway, &from, &s.UserAgent, db.TimeScanner(&s.CreatedAt), db.TimeScanner(&s.SeenAt), db.TimeScanner(&s.ExpiresAt),
		(*string)(&s.Role), &s.ReadsMail)
	s.NeedsSecondFactor = halfway != 0
	s.RemoteAddr, _ = netip.ParseAddr(from)
	return s, err
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
