// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// Protocol is the protocol that a client signs in for.
type Protocol string

// The protocols that a client can sign in for.
const (
	IMAP Protocol = "imap"
	SMTP Protocol = "smtp" // submission
	Web  Protocol = "web"  // the dashboard; app passwords don't work for it
)

// AppPassword is a password of a mailbox for one application. It is random, and stored only as a
// hash.
type AppPassword struct {
	ID         db.ID
	Mailbox    db.ID
	Name       string
	Protocols  []Protocol // ordered imap, smtp
	CreatedAt  time.Time
	LastUsedAt time.Time // accurate to an hour; zero for never
}

const (
	// MaxAppPasswords is the maximum number of app passwords of a mailbox.
	MaxAppPasswords = 50

	maxAppName     = 100 // bytes
	appRandomBytes = 12  // bytes; 96 random bits can't be guessed from their hash
	appTokenLength = 26  // random bytes and a checksum, in base32
	appGroupLength = 5   // letters between hyphens
)

var (
	lockMailboxQuery       = db.SQL(`SELECT id FROM mailbox WHERE id = $1 AND account = $2 AND deleted_at = 0 {for_update}`)
	insertAppPasswordQuery = db.SQL(`INSERT INTO app_password (id, mailbox, name, protocols, hash, scram, created_at, last_used_at)
		SELECT $1, $2, CAST($3 AS TEXT), CAST($4 AS TEXT), $5, CAST($6 AS TEXT), $7, 0
		WHERE (SELECT COUNT(*) FROM app_password WHERE mailbox = $2) < $8`)
	listAppPasswordsQuery   = db.PagedSQL(`SELECT id, mailbox, name, protocols, created_at, last_used_at FROM app_password WHERE {page mailbox = $1}`)
	deleteAppPasswordQuery  = db.SQL(`DELETE FROM app_password WHERE id = $1 AND mailbox = $2`)
	deleteAppPasswordsQuery = db.SQL(`DELETE FROM app_password WHERE mailbox = $1`)
	touchAppPasswordQuery   = db.SQL(`UPDATE app_password SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2`)
	appPasswordExistsQuery  = db.SQL(`SELECT id FROM app_password WHERE id = $1`)
	loginByAppPasswordQuery = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
			` + usedExpr + `, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, p.id, p.name, p.protocols, p.scram
		FROM app_password p JOIN mailbox m ON m.id = p.mailbox JOIN mailbox_usage u ON u.mailbox = m.id
		WHERE p.hash = $1 AND m.address = $2 AND m.deleted_at = 0`)
)

// CreateAppPassword creates a password for an application of a mailbox's user, and returns it; it
// can't be retrieved later. More than MaxAppPasswords is a fault.Conflict.
func (m *Mailboxes) CreateAppPassword(ctx context.Context, account, mailbox db.ID, name string, protocols []string) (AppPassword, string, error) {
	made := AppPassword{ID: m.db.NewID(), Mailbox: mailbox, CreatedAt: m.now().UTC()}
	var bad fault.FieldErrors
	made.Name = parseAppName(&bad, name)
	var err error
	if made.Protocols, err = parseProtocols(protocols); err != nil {
		bad.Add("protocols", "unknown_protocol", "Give imap, smtp or both.")
	}
	if err := bad.Err(); err != nil {
		return AppPassword{}, "", err
	}
	box, err := m.Get(ctx, account, mailbox)
	if err != nil {
		return AppPassword{}, "", err
	}
	fresh, err := m.newAppSecret(ctx, box)
	if err != nil {
		return AppPassword{}, "", err
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error { return m.insertAppPassword(ctx, tx, account, made, fresh) })
	return made, formatAppPassword(fresh.token), err
}

func parseAppName(bad *fault.FieldErrors, name string) string {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxAppName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		bad.Add("name", "invalid_name", "Give a name of 1 to %d bytes in one line, such as that of the device.", maxAppName)
	}
	return name
}

// appSecret is an app password that is not stored yet.
type appSecret struct{ token, scram string }

func (m *Mailboxes) newAppSecret(ctx context.Context, box Mailbox) (a appSecret, err error) {
	a.token = secret.NewToken("", appRandomBytes)
	a.scram, err = m.appPasswordVerifiers(ctx, accountRequester(box.Account), box, a.token)
	return a, err
}

// appPasswordVerifiers returns the SCRAM verifiers of an app password, both as shown and without
// hyphens: with SCRAM the server doesn't see the typed password, so it can't normalize it.
func (m *Mailboxes) appPasswordVerifiers(ctx context.Context, by credential.Requester, box Mailbox, token string) (string, error) {
	return m.SCRAM.Verifiers(ctx, by, box.Address, formatAppPassword(token), token)
}

func (m *Mailboxes) insertAppPassword(ctx context.Context, tx *db.Tx, account db.ID, made AppPassword, fresh appSecret) error {
	// The lock keeps the count valid until the commit.
	if err := db.IfNoRow(tx.One(ctx, lockMailboxQuery.With(made.Mailbox, account), new(db.ID)), notFound()); err != nil {
		return err
	}
	insert := insertAppPasswordQuery.With(made.ID, made.Mailbox, made.Name, joinProtocols(made.Protocols), secret.HashToken(fresh.token), fresh.scram, db.Micros(made.CreatedAt), MaxAppPasswords)
	return tx.ExecOrFail(ctx, insert, fault.New(fault.Conflict, "too_many_app_passwords", "A mailbox may have %d app passwords. Revoke one first.", MaxAppPasswords))
}

// AppPasswords lists the app passwords of a mailbox of the account, newest first.
func (m *Mailboxes) AppPasswords(ctx context.Context, account, mailbox db.ID, page db.Page) ([]AppPassword, bool, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return nil, false, err
	}
	if err := m.Flush(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listAppPasswordsQuery, page, scanApp, mailbox)
}

// RevokeAppPassword revokes an app password and ends the sessions that use it, on every node.
func (m *Mailboxes) RevokeAppPassword(ctx context.Context, account, mailbox, id db.ID) error {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return err
	}
	err := m.db.ExecOrFail(ctx, deleteAppPasswordQuery.With(id, mailbox), fault.New(fault.NotFound, "not_found", "There is no such app password."))
	if err == nil {
		m.revokeLogins(mailbox)
	}
	return err
}

func scanApp(r db.Row) (p AppPassword, err error) {
	var protocols string
	err = r.Scan(&p.ID, &p.Mailbox, &p.Name, &protocols, db.TimeScanner(&p.CreatedAt), db.TimeScanner(&p.LastUsedAt))
	p.Protocols = splitProtocols(protocols)
	return p, err
}

func parseProtocols(given []string) (known []Protocol, err error) {
	for _, p := range []Protocol{IMAP, SMTP} {
		if slices.Contains(given, string(p)) {
			known = append(known, p)
		}
	}
	for _, p := range given {
		if !slices.Contains(known, Protocol(p)) {
			return nil, errors.New("unknown protocol")
		}
	}
	if len(known) == 0 {
		return nil, errors.New("no protocol")
	}
	return known, nil
}

func joinProtocols(protocols []Protocol) string {
	var all []string
	for _, p := range protocols {
		all = append(all, string(p))
	}
	return strings.Join(all, " ")
}

func splitProtocols(text string) (protocols []Protocol) {
	for _, p := range strings.Fields(text) {
		protocols = append(protocols, Protocol(p))
	}
	return protocols
}

// formatAppPassword formats an app password for display; parseAppPassword reads it.
func formatAppPassword(token string) string {
	var b strings.Builder
	for i, char := range token {
		if i > 0 && i%appGroupLength == 0 && i < len(token)-1 {
			b.WriteByte('-')
		}
		b.WriteRune(char)
	}
	return b.String()
}

// parseAppPassword reads a possible app password as people copy and type it. A mailbox's own
// password never looks like one, because it has an upper-case letter and another character.
func parseAppPassword(password string) (token string, ok bool) {
	if len(password) > 2*appTokenLength {
		return "", false
	}
	token = strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(password))
	return token, len(token) == appTokenLength && secret.IsWellFormedToken("", token)
}

// verifyAppPassword finds the login with this app password.
func (m *Mailboxes) verifyAppPassword(ctx context.Context, a *loginAttempt, may func(loginCandidate) bool, token string) (*loginCandidate, error) {
	apps, err := db.All(ctx, m.db, loginByAppPasswordQuery.With(secret.HashToken(token), a.foldedAddress), scanAppLogin)
	if err != nil || len(apps) == 0 || !may(apps[0]) {
		return nil, err
	}
	m.storeAppVerifiers(ctx, m.requester(a), apps[0], token)
	return &apps[0], nil
}

func scanAppLogin(r db.Row) (l loginCandidate, err error) {
	var app db.ID
	var name, protocols string
	l.Mailbox, err = scanMailbox(db.WithExtra(r, &app, &name, &protocols, &l.scram))
	l.appPassword, l.appPasswordName, l.protocols = app, name, splitProtocols(protocols)
	return l, err
}
