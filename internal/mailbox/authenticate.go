// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Several mailboxes may have one address: when its domain changed hands, the
// former holder still reads its mail. At most so many are tried.
const maxNamesakes = 3

var byAddress = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
		u.bytes, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, m.password, CASE WHEN m.scram_of = m.password THEN m.scram ELSE '' END
	FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id
	WHERE m.address = $1 AND m.deleted_at = 0 ORDER BY m.id DESC LIMIT 3`)

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
}

// Authenticate finds the mailbox that signs in with its address and its password,
// or an app password for the protocol. Wrong ones are fault.Unknown, and take as
// long whether or not the address exists; too many of them are fault.Limited;
// what is suspended, or an app password for another protocol, is fault.Denied. It
// delays its answer after failures, at most 4 s.
func (m *Mailboxes) Authenticate(ctx context.Context, p Protocol, user, password string, from netip.Addr) (Mailbox, error) {
	return m.signIn(ctx, &attempt{p, user, from, password, WrongPassword}, func(key string) (Mailbox, []Protocol, error) {
		return m.verify(ctx, key, password)
	})
}

// signIn is Authenticate for whatever the client proves who it is by, of which
// verify says what it is good for.
func (m *Mailboxes) signIn(ctx context.Context, a *attempt, verify func(key string) (Mailbox, []Protocol, error)) (Mailbox, error) {
	key := ""
	if a, err := address.Parse(a.user); err == nil {
		key = a.Key()
	}
	wait, err := m.Guesses.Check(key, a.from)
	if err != nil {
		return Mailbox{}, err
	}
	if err := m.pause(ctx, wait); err != nil {
		return Mailbox{}, err
	}
	box, protocols, err := verify(key)
	if err != nil {
		return Mailbox{}, err
	}
	if len(protocols) == 0 {
		if box.ID != 0 {
			m.signedIn(box, a.protocol, a.from, a.failed)
		}
		m.Guesses.Failed(key, a.from, a.guess)
		return Mailbox{}, fault.New(fault.Unknown, "invalid_credentials", "The address or the password is wrong.")
	}
	m.Guesses.Succeeded(key, a.from)
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

// verify finds the mailbox that a password is of, and what that is good for:
// nothing, if it is wrong; then the mailbox is one that has the address. What
// looks like an app password is never tried as an own one.
func (m *Mailboxes) verify(ctx context.Context, key, password string) (Mailbox, []Protocol, error) {
	token, app := appToken(password)
	if app {
		if box, protocols, err := m.verifyApp(ctx, key, token); err != nil || len(protocols) > 0 {
			return box, protocols, err
		}
	}
	var found []login
	if key != "" {
		var err error
		found, err = db.All(ctx, m.db, byAddress.With(key), scanLogin)
		if err != nil {
			return Mailbox{}, nil, err
		}
	}
	switch {
	case app && len(found) > 0:
		return found[0].Mailbox, nil, nil
	case app:
		return Mailbox{}, nil, nil
	case len(found) == 0:
		return Mailbox{}, nil, m.Hasher.Dummy(ctx, password)
	}
	for _, l := range found[:min(len(found), maxNamesakes)] {
		ok, err := m.cache.Verify(ctx, int64(l.ID), l.generation, l.phc, password)
		if err != nil {
			return Mailbox{}, nil, err
		}
		if ok {
			m.learn(ctx, l, password)
			return l.Mailbox, l.protocols, nil
		}
	}
	return found[0].Mailbox, nil, nil
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
