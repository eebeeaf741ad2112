// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// Several mailboxes may have the same address: when a domain changes hands, its former owner can
// still read the old mail. Three of them are tried.
var loginsByAddressQuery = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
		` + usedExpr + `, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, m.password, CASE WHEN m.scram_of = m.password THEN m.scram ELSE '' END
	FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id
	WHERE m.address = $1 AND m.deleted_at = 0 ORDER BY m.id DESC LIMIT 3`)

// TooManyLoginsDelay is how long a listener waits before it reports too many attempts. Otherwise
// many connections that keep trying would take all processors.
const TooManyLoginsDelay = time.Second

// loginCandidate is a mailbox with one of its passwords.
type loginCandidate struct {
	Mailbox
	passwordVerifiers // without phc for an app password
	protocols         []Protocol
}

// loginAttempt is an attempt to sign in.
type loginAttempt struct {
	protocol     Protocol
	user         string
	from         netip.Addr
	guess        string // the password, or a value that stands for it; repeating the same one is no new guess
	failedResult string // Result of the SignIn entry if the attempt fails

	foldedAddress string           // folded address; set by signIn
	candidates    []loginCandidate // mailboxes with this address, each with its own password; set by signIn
}

// verifyFunc returns the login whose password the client proves, among those that may be tried, or
// nil.
type verifyFunc func(may func(loginCandidate) bool) (*loginCandidate, error)

// Authenticate finds the mailbox that signs in with its address and its password, or with an app
// password for the protocol. Wrong credentials are fault.Unauthenticated, and take as long whether
// or not the address exists. Too many failures are fault.RateLimited. A suspended mailbox, or an
// app password for another protocol, is fault.Denied. After failures the reply is delayed by at
// most 4 s.
func (m *Mailboxes) Authenticate(ctx context.Context, p Protocol, user, password string, from netip.Addr) (Mailbox, error) {
	a := &loginAttempt{protocol: p, user: user, from: from, guess: password, failedResult: ResultWrongPassword}
	if token, ok := parseAppPassword(password); ok {
		return m.signIn(ctx, a, func(may func(loginCandidate) bool) (*loginCandidate, error) {
			return m.verifyAppPassword(ctx, a, may, token)
		}, kindAppPassword)
	}
	return m.signIn(ctx, a, func(may func(loginCandidate) bool) (*loginCandidate, error) {
		return m.verifyPassword(ctx, a, may, password)
	}, kindPassword)
}

// The login limiter's kinds of passwords of a mailbox. All app passwords are one kind, because a
// wrong one doesn't show which was meant.
const (
	kindPassword    = "mailbox"
	kindAppPassword = ratelimit.AppPasswordKind
)

func credentialOf(kind string, mailbox db.ID) ratelimit.Credential {
	return ratelimit.Credential(kind + ":" + strconv.FormatInt(int64(mailbox), 10))
}

func (l *loginCandidate) credential() ratelimit.Credential {
	if l.appPassword != 0 {
		return credentialOf(kindAppPassword, l.ID)
	}
	return credentialOf(kindPassword, l.ID)
}

// credentials returns the limiter's credentials of the mailboxes with the address, or of an address
// that no mailbox has.
func (m *Mailboxes) credentials(a *loginAttempt, kinds []string) (all []ratelimit.Credential) {
	for _, kind := range kinds {
		for _, l := range a.candidates {
			all = append(all, credentialOf(kind, l.ID))
		}
		if len(a.candidates) == 0 {
			all = append(all, m.Logins.HashedCredential(kind, a.foldedAddress))
		}
	}
	return all
}

// signIn authenticates a client that proves a password of one of the kinds.
func (m *Mailboxes) signIn(ctx context.Context, a *loginAttempt, verify verifyFunc, kinds ...string) (Mailbox, error) {
	if addr, err := address.Parse(a.user); err == nil {
		a.foldedAddress = addr.Key()
	}
	var err error
	if a.candidates, err = db.All(ctx, m.db, loginsByAddressQuery.With(a.foldedAddress), scanLogin); err != nil {
		return Mailbox{}, err
	}
	var proven *loginCandidate
	right, err := m.Logins.Try(ctx, a.from, a.guess, m.credentials(a, kinds), func(may []ratelimit.Credential) (ratelimit.Credential, error) {
		var err error
		proven, err = verify(func(l loginCandidate) bool { return slices.Contains(may, l.credential()) })
		if err != nil || proven == nil {
			return "", err
		}
		return proven.credential(), nil
	})
	if err != nil {
		return Mailbox{}, err
	}
	if right == "" {
		if len(a.candidates) > 0 {
			m.recordSignIn(a.candidates[0].Mailbox, a.protocol, a.from, a.failedResult)
		}
		return Mailbox{}, fault.New(fault.Unauthenticated, "invalid_credentials", "The address or the password is wrong.")
	}
	box, protocols := proven.Mailbox, proven.protocols
	open, err := db.Exists(ctx, m.db, ActiveCheck(box.ID))
	if err != nil {
		return Mailbox{}, err
	}
	if !open {
		m.recordSignIn(box, a.protocol, a.from, ResultSuspended)
		return Mailbox{}, fault.New(fault.Denied, "mailbox_suspended", "This mailbox is suspended.")
	}
	if !slices.Contains(protocols, a.protocol) {
		m.recordSignIn(box, a.protocol, a.from, ResultWrongProtocol)
		return Mailbox{}, fault.New(fault.Denied, "wrong_protocol", "This app password was not made for this.")
	}
	m.recordSignIn(box, a.protocol, a.from, ResultOK)
	return box, nil
}

// verifyPassword finds the login with this mailbox password. It never matches app passwords.
func (m *Mailboxes) verifyPassword(ctx context.Context, a *loginAttempt, may func(loginCandidate) bool, password string) (*loginCandidate, error) {
	by := m.requester(a)
	if len(a.candidates) == 0 {
		return nil, m.Hasher.VerifyDummy(ctx, by, password)
	}
	for _, l := range a.candidates {
		if !may(l) {
			continue
		}
		ok, err := m.Hasher.Verify(ctx, by, int64(l.ID), l.phc, password)
		if err != nil {
			return nil, err
		}
		if ok {
			m.storeVerifiers(ctx, by, l, password)
			return &l, nil
		}
	}
	return nil, nil
}

// requester identifies the client that has a password or proof verified, by network and address.
func (m *Mailboxes) requester(a *loginAttempt) credential.Requester {
	return credential.Requester{Networks: m.Logins.Networks(a.from), Target: a.foldedAddress}
}

func scanLogin(r db.Row) (l loginCandidate, err error) {
	l.Mailbox, err = scanMailbox(db.WithExtra(r, &l.phc, &l.scram))
	l.protocols = []Protocol{IMAP, SMTP, Web}
	return l, err
}
