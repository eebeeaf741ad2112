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
	appLoginsByAddressQuery = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
			` + usedExpr + `, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, p.id, p.name, p.protocols, p.scram
		FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id JOIN app_password p ON p.mailbox = m.id
		WHERE m.address = $1 AND m.deleted_at = 0 ORDER BY m.id DESC LIMIT 150`)
	// A concurrent password change has set its own verifiers.
	setVerifiersQuery       = db.SQL(`UPDATE mailbox SET scram = $3, scram_of = $2 WHERE id = $1 AND password = $2`)
	setAppVerifiersQuery    = db.SQL(`UPDATE app_password SET scram = $2 WHERE id = $1`)
	deleteVerifiersQuery    = db.SQL(`UPDATE mailbox SET scram = '' WHERE id IN (SELECT id FROM mailbox WHERE scram <> '' ORDER BY id LIMIT 500)`)
	deleteAppVerifiersQuery = db.SQL(`UPDATE app_password SET scram = '' WHERE id IN (SELECT id FROM app_password WHERE scram <> '' ORDER BY id LIMIT 500)`)
)

// maxVerifiers is the maximum number of verifiers of a mailbox: two for each password.
const maxVerifiers = 2 * (MaxAppPasswords + 1)

// AuthenticateSCRAM is Authenticate with the client's final message of a SCRAM-SHA-256 exchange;
// answer is the server's final message, sent before the client is signed in. A message that doesn't
// belong to the exchange is credential.ErrSCRAMMessage and doesn't count as a guess. Wrong
// passwords can't be distinguished, so each counts as a guess.
func (m *Mailboxes) AuthenticateSCRAM(ctx context.Context, p Protocol, e *credential.SCRAMExchange, final string, from netip.Addr) (box Mailbox, answer string, err error) {
	if err := e.CheckFinalWithoutProof(final); err != nil {
		return Mailbox{}, "", err
	}
	a := &loginAttempt{protocol: p, user: e.User, from: from, guess: final, failedResult: ResultWrongPassword}
	box, err = m.signIn(ctx, a, func(may func(loginCandidate) bool) (*loginCandidate, error) {
		apps, err := db.All(ctx, m.db, appLoginsByAddressQuery.With(a.foldedAddress), scanAppLogin)
		if err != nil {
			return nil, err
		}
		release, err := m.Hasher.Acquire(ctx, m.requester(a))
		if err != nil {
			return nil, err
		}
		defer release()
		tested := 0
		for _, l := range slices.Concat(a.candidates, apps) {
			if !may(l) {
				continue
			}
			var ok bool
			if answer, ok = e.Verify(final, l.scram); ok {
				return &l, nil
			}
			tested += len(strings.Fields(l.scram))
		}
		// A failure takes as long with any number of passwords, including none.
		for ; tested < maxVerifiers; tested++ {
			_ = e.CheckFinalWithoutProof(final)
		}
		if len(a.candidates) > 0 && m.SCRAM.NeedsVerifiers(a.candidates[0].Address, a.candidates[0].scram) {
			a.failedResult = ResultNoVerifier
		}
		return nil, nil
	}, kindPassword, kindAppPassword)
	return box, answer, err
}

// storeVerifiers stores the verifiers of a password that was just verified, if there are none. An
// error doesn't fail the login: the next one tries again.
func (m *Mailboxes) storeVerifiers(ctx context.Context, by credential.Requester, l loginCandidate, password string) {
	if !m.SCRAM.NeedsVerifiers(l.Address, l.scram) {
		return
	}
	if scram, err := m.SCRAM.Verifiers(ctx, by, l.Address, password); err == nil {
		_ = m.db.Run(ctx, setVerifiersQuery.With(l.ID, l.phc, scram))
	}
}

// storeAppVerifiers is storeVerifiers for an app password.
func (m *Mailboxes) storeAppVerifiers(ctx context.Context, by credential.Requester, l loginCandidate, token string) {
	if !m.SCRAM.NeedsVerifiers(l.Address, l.scram) {
		return
	}
	if scram, err := m.appPasswordVerifiers(ctx, by, l.Mailbox, token); err == nil {
		_ = m.db.Run(ctx, setAppVerifiersQuery.With(l.appPassword, scram))
	}
}

// deleteVerifiers deletes all verifiers if none shall be stored.
func (m *Mailboxes) deleteVerifiers(ctx context.Context) error {
	if m.SCRAM != nil {
		return nil
	}
	for _, drop := range []db.Statement{deleteVerifiersQuery.With(), deleteAppVerifiersQuery.With()} {
		for n := int64(1); n > 0; {
			var err error
			if n, err = m.db.Exec(ctx, drop); err != nil {
				return err
			}
		}
	}
	return nil
}
