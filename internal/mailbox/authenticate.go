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
	"github.com/mailstead/mailstead/internal/throttle"
)

// Several mailboxes may have one address: when its domain changed hands, the
// former holder still reads its mail. Three of them are tried.
var byAddress = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
		` + used + `, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, m.password, CASE WHEN m.scram_of = m.password THEN m.scram ELSE '' END
	FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id
	WHERE m.address = $1 AND m.deleted_at = 0 ORDER BY m.id DESC LIMIT 3`)

// RefusalPause is how long a listener waits before it answers that there were too
// many tries. Many connections that go on trying would else take all processors.
const RefusalPause = time.Second

// login is a password of a mailbox.
type login struct {
	Mailbox
	stored    // of an app password without phc
	protocols []Protocol
}

// attempt is somebody who signs in.
type attempt struct {
	protocol Protocol
	user     string
	from     netip.Addr
	guess    string // the password, or what stands for it: the same one again is no new guess
	failed   string // the SignIn's Result when it is wrong

	key   string  // the address, folded; set by signIn
	found []login // by their own passwords, the mailboxes that have it; set by signIn
}

// verify returns the login that a client proves, among those that may be tried;
// nil if it proves none.
type verify func(may func(login) bool) (*login, error)

// Authenticate finds the mailbox that signs in with its address and its password,
// or an app password for the protocol. Wrong ones are fault.Unknown, and take as
// long whether or not the address exists; too many of them are fault.Limited;
// what is suspended, or an app password for another protocol, is fault.Denied. It
// delays its answer after failures, at most 4 s.
func (m *Mailboxes) Authenticate(ctx context.Context, p Protocol, user, password string, from netip.Addr) (Mailbox, error) {
	a := &attempt{protocol: p, user: user, from: from, guess: password, failed: WrongPassword}
	if token, ok := appToken(password); ok {
		return m.signIn(ctx, a, func(may func(login) bool) (*login, error) { return m.verifyApp(ctx, a, may, token) }, appPasswords)
	}
	return m.signIn(ctx, a, func(may func(login) bool) (*login, error) { return m.verifyOwn(ctx, a, may, password) }, ownPassword)
}

// The kinds of passwords that a mailbox has, to the login limiter. The app
// passwords of a mailbox are one: of a wrong one nobody knows which was meant.
const (
	ownPassword  = "mailbox"
	appPasswords = throttle.AppPasswords
)

func credentialOf(kind string, mailbox db.ID) throttle.Credential {
	return throttle.Credential(kind + ":" + strconv.FormatInt(int64(mailbox), 10))
}

func (l *login) credential() throttle.Credential {
	if l.app != 0 {
		return credentialOf(appPasswords, l.ID)
	}
	return credentialOf(ownPassword, l.ID)
}

// credentials are those of the mailboxes with the address, or of an address that
// no mailbox has.
func (m *Mailboxes) credentials(a *attempt, kinds []string) (all []throttle.Credential) {
	for _, kind := range kinds {
		for _, l := range a.found {
			all = append(all, credentialOf(kind, l.ID))
		}
		if len(a.found) == 0 {
			all = append(all, m.Logins.Hashed(kind, a.key))
		}
	}
	return all
}

// signIn lets in who proves a password of one of the kinds.
func (m *Mailboxes) signIn(ctx context.Context, a *attempt, verify verify, kinds ...string) (Mailbox, error) {
	if addr, err := address.Parse(a.user); err == nil {
		a.key = addr.Key()
	}
	var err error
	if a.found, err = db.All(ctx, m.db, byAddress.With(a.key), scanLogin); err != nil {
		return Mailbox{}, err
	}
	var proven *login
	right, err := m.Logins.Try(ctx, a.from, a.guess, m.credentials(a, kinds), func(may []throttle.Credential) (throttle.Credential, error) {
		var err error
		proven, err = verify(func(l login) bool { return slices.Contains(may, l.credential()) })
		if err != nil || proven == nil {
			return "", err
		}
		return proven.credential(), nil
	})
	if err != nil {
		return Mailbox{}, err
	}
	if right == "" {
		if len(a.found) > 0 {
			m.signedIn(a.found[0].Mailbox, a.protocol, a.from, a.failed)
		}
		return Mailbox{}, fault.New(fault.Unknown, "invalid_credentials", "The address or the password is wrong.")
	}
	box, protocols := proven.Mailbox, proven.protocols
	open, err := m.any(ctx, InUse(box.ID))
	if err != nil {
		return Mailbox{}, err
	}
	if !open {
		m.signedIn(box, a.protocol, a.from, WasSuspended)
		return Mailbox{}, fault.New(fault.Denied, "mailbox_suspended", "This mailbox is suspended.")
	}
	if !slices.Contains(protocols, a.protocol) {
		m.signedIn(box, a.protocol, a.from, WrongProtocol)
		return Mailbox{}, fault.New(fault.Denied, "wrong_protocol", "This app password was not made for this.")
	}
	m.signedIn(box, a.protocol, a.from, SignedIn)
	return box, nil
}

// verifyOwn finds the login whose own password this is. An app password is never
// tried as an own one.
func (m *Mailboxes) verifyOwn(ctx context.Context, a *attempt, may func(login) bool, password string) (*login, error) {
	by := m.requester(a)
	if len(a.found) == 0 {
		return nil, m.Hasher.Refuse(ctx, by, password)
	}
	for _, l := range a.found {
		if !may(l) {
			continue
		}
		ok, err := m.Hasher.Verify(ctx, by, int64(l.ID), l.phc, password)
		if err != nil {
			return nil, err
		}
		if ok {
			m.learn(ctx, by, l, password)
			return &l, nil
		}
	}
	return nil, nil
}

// requester is who has a password or a proof verified: a client that signs in with
// an address.
func (m *Mailboxes) requester(a *attempt) credential.Requester {
	return credential.Requester{Networks: m.Logins.Networks(a.from), Target: a.key}
}

func scanLogin(r db.Row) (l login, err error) {
	l.Mailbox, err = scan(more{r, []any{&l.phc, &l.scram}})
	l.protocols = []Protocol{IMAP, SMTP, Web}
	return l, err
}

// more scans more columns after those that the caller asks for.
type more struct {
	db.Row
	last []any
}

func (r more) Scan(dst ...any) error { return r.Row.Scan(append(dst, r.last...)...) }
