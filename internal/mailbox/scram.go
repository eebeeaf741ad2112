// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
)

var (
	appsByAddress = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
			u.bytes, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, p.id, p.name, p.protocols, p.scram
		FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id JOIN app_password p ON p.mailbox = m.id
		WHERE m.address = $1 AND m.deleted_at = 0 ORDER BY m.id DESC LIMIT 150`)
	// Whoever has set another password meanwhile has set its verifiers too.
	learnOwn = db.SQL(`UPDATE mailbox SET scram = $3, scram_of = $2 WHERE id = $1 AND password = $2`)
	learnApp = db.SQL(`UPDATE app_password SET scram = $2 WHERE id = $1`)
	dropOwns = db.SQL(`UPDATE mailbox SET scram = '' WHERE id IN (SELECT id FROM mailbox WHERE scram <> '' ORDER BY id LIMIT 500)`)
	dropApps = db.SQL(`UPDATE app_password SET scram = '' WHERE id IN (SELECT id FROM app_password WHERE scram <> '' ORDER BY id LIMIT 500)`)
)

// maxVerifiers is how many a mailbox may have: two of each password.
const maxVerifiers = 2 * (MaxAppPasswords + 1)

// Prove is Authenticate by the client's last message of an exchange of
// SCRAM-SHA-256; answer is what it is to be told before it is signed in. A message
// that does not belong to the exchange is credential.ErrScram and no guess. A wrong
// password can't be told from another wrong one, so each counts as a guess.
func (m *Mailboxes) Prove(ctx context.Context, p Protocol, e *credential.Exchange, final string, from netip.Addr) (box Mailbox, answer string, err error) {
	if err := e.Check(final); err != nil {
		return Mailbox{}, "", err
	}
	a := &attempt{protocol: p, user: e.User, from: from, guess: final, failed: WrongPassword}
	box, err = m.signIn(ctx, a, func(may func(login) bool) (*login, error) {
		apps, err := db.All(ctx, m.db, appsByAddress.With(a.key), scanAppLogin)
		if err != nil {
			return nil, err
		}
		tested := 0
		for _, l := range slices.Concat(a.found, apps) {
			if !may(l) {
				continue
			}
			var ok bool
			if answer, ok = e.Proves(final, l.scram); ok {
				return &l, nil
			}
			tested += len(strings.Fields(l.scram))
		}
		// A refusal takes as long however many passwords there are, or none.
		for ; tested < maxVerifiers; tested++ {
			_ = e.Check(final)
		}
		if len(a.found) > 0 && m.Scram.Lacks(a.found[0].Address, a.found[0].scram) {
			a.failed = NoVerifier
		}
		return nil, nil
	}, ownPassword, appPasswords)
	return box, answer, err
}

// learn keeps the verifiers of a password that was just found right, if there are
// none. No log-in fails over that: the next one tries again.
func (m *Mailboxes) learn(ctx context.Context, l login, password string) {
	if !m.Scram.Lacks(l.Address, l.scram) {
		return
	}
	if scram, err := m.Scram.Verifiers(ctx, l.Address, password); err == nil {
		_ = m.exec(ctx, learnOwn.With(l.ID, l.phc, scram))
	}
}

// learnApp is learn for an app password.
func (m *Mailboxes) learnApp(ctx context.Context, l login, token string) {
	if !m.Scram.Lacks(l.Address, l.scram) {
		return
	}
	if scram, err := m.appVerifiers(ctx, l.Mailbox, token); err == nil {
		_ = m.exec(ctx, learnApp.With(l.app, scram))
	}
}

// dropVerifiers deletes all verifiers if none shall be kept.
func (m *Mailboxes) dropVerifiers(ctx context.Context) error {
	if m.Scram != nil {
		return nil
	}
	for _, drop := range []db.Statement{dropOwns.With(), dropApps.With()} {
		for n := int64(1); n > 0; {
			err := m.db.Tx(ctx, func(tx *db.Tx) (err error) {
				n, err = tx.Exec(ctx, drop)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
