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

// Protocol is what somebody signs in for.
type Protocol string

// The protocols.
const (
	IMAP Protocol = "imap"
	SMTP Protocol = "smtp" // submission
	Web  Protocol = "web"  // the dashboard; app passwords are not for it
)

// AppPassword is a password of a mailbox for one application. It is random, and
// kept as a hash alone.
type AppPassword struct {
	ID         db.ID
	Mailbox    db.ID
	Name       string
	Protocols  []Protocol // in the order imap, smtp
	CreatedAt  time.Time
	LastUsedAt time.Time // give or take an hour; zero for never
}

const (
	// MaxAppPasswords is how many a mailbox may have.
	MaxAppPasswords = 50

	maxAppName = 100 // bytes
	appRandom  = 12  // bytes: no hash of 96 random bits is guessed
	appLetters = 26  // that, and a checksum, in base32
	appGroup   = 5   // letters between hyphens
)

var (
	lockBox   = db.SQL(`SELECT id FROM mailbox WHERE id = $1 AND account = $2 AND deleted_at = 0 {for_update}`)
	insertApp = db.SQL(`INSERT INTO app_password (id, mailbox, name, protocols, hash, scram, created_at, last_used_at)
		SELECT $1, $2, CAST($3 AS TEXT), CAST($4 AS TEXT), $5, CAST($6 AS TEXT), $7, 0
		WHERE (SELECT COUNT(*) FROM app_password WHERE mailbox = $2) < $8`)
	listApps  = db.Paged(`SELECT id, mailbox, name, protocols, created_at, last_used_at FROM app_password WHERE {page mailbox = $1}`)
	removeApp = db.SQL(`DELETE FROM app_password WHERE id = $1 AND mailbox = $2`)
	noApps    = db.SQL(`DELETE FROM app_password WHERE mailbox = $1`)
	touchApp  = db.SQL(`UPDATE app_password SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2`)
	appThere  = db.SQL(`SELECT id FROM app_password WHERE id = $1`)
	byApp     = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
			` + used + `, u.messages, m.created_at, m.deleted_at, m.forward_to, m.keep_copy, m.spam_filter, m.generation, p.id, p.name, p.protocols, p.scram
		FROM app_password p JOIN mailbox m ON m.id = p.mailbox JOIN mailbox_usage u ON u.mailbox = m.id
		WHERE p.hash = $1 AND m.address = $2 AND m.deleted_at = 0`)
)

// CreateAppPassword makes a password for an application of a mailbox's user, and
// returns it: it can't be had again. More than MaxAppPasswords is a
// fault.Conflict.
func (m *Mailboxes) CreateAppPassword(ctx context.Context, account, mailbox db.ID, name string, protocols []string) (AppPassword, string, error) {
	made := AppPassword{ID: m.db.NewID(), Mailbox: mailbox, CreatedAt: m.now().UTC()}
	var bad fault.Fields
	made.Name = readAppName(&bad, name)
	var err error
	if made.Protocols, err = readProtocols(protocols); err != nil {
		bad.Add("protocols", "unknown_protocol", "Give imap, smtp or both.")
	}
	if err := bad.Err(); err != nil {
		return AppPassword{}, "", err
	}
	box, err := m.Get(ctx, account, mailbox)
	if err != nil {
		return AppPassword{}, "", err
	}
	fresh, err := m.newApp(ctx, box)
	if err != nil {
		return AppPassword{}, "", err
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error { return m.writeApp(ctx, tx, account, made, fresh) })
	return made, grouped(fresh.token), err
}

func readAppName(bad *fault.Fields, name string) string {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxAppName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		bad.Add("name", "invalid_name", "Give a name of 1 to %d bytes in one line, such as that of the device.", maxAppName)
	}
	return name
}

// app is an app password that is not written yet.
type app struct{ token, scram string }

func (m *Mailboxes) newApp(ctx context.Context, box Mailbox) (a app, err error) {
	a.token = secret.Token("", appRandom)
	a.scram, err = m.appVerifiers(ctx, ofAccount(box.Account), box, a.token)
	return a, err
}

// appVerifiers are those of an app password as it is shown, and without hyphens:
// with SCRAM the client's letters are not seen here, to be read as people mean
// them.
func (m *Mailboxes) appVerifiers(ctx context.Context, by credential.Requester, box Mailbox, token string) (string, error) {
	return m.Scram.Verifiers(ctx, by, box.Address, grouped(token), token)
}

func (m *Mailboxes) writeApp(ctx context.Context, tx *db.Tx, account db.ID, made AppPassword, fresh app) error {
	// So that the count is still true when this is committed.
	if err := tx.One(ctx, lockBox.With(made.Mailbox, account), new(db.ID)); errors.Is(err, db.ErrNoRow) {
		return notFound()
	} else if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, insertApp.With(made.ID, made.Mailbox, made.Name, joined(made.Protocols), secret.Hash(fresh.token), fresh.scram, db.Micros(made.CreatedAt), MaxAppPasswords))
	return some(n, err, fault.New(fault.Conflict, "too_many_app_passwords", "A mailbox may have %d app passwords. Revoke one first.", MaxAppPasswords))
}

// AppPasswords lists those of a mailbox of the account, newest first.
func (m *Mailboxes) AppPasswords(ctx context.Context, account, mailbox db.ID, page db.Page) ([]AppPassword, bool, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return nil, false, err
	}
	if err := m.Note(ctx); err != nil {
		return nil, false, err
	}
	return db.ReadPage(ctx, m.db, listApps, page, scanApp, mailbox)
}

// RevokeAppPassword ends an app password, and the sessions that stand on it, on
// every node.
func (m *Mailboxes) RevokeAppPassword(ctx context.Context, account, mailbox, id db.ID) error {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return err
	}
	n, err := m.db.Exec(ctx, removeApp.With(id, mailbox))
	if err = some(n, err, fault.New(fault.NotFound, "not_found", "There is no such app password.")); err == nil {
		m.revoked(mailbox)
	}
	return err
}

func scanApp(r db.Row) (p AppPassword, err error) {
	var protocols string
	var created, used int64
	err = r.Scan(&p.ID, &p.Mailbox, &p.Name, &protocols, &created, &used)
	p.Protocols, p.CreatedAt, p.LastUsedAt = split(protocols), db.Time(created), db.Time(used)
	return p, err
}

func readProtocols(given []string) (known []Protocol, err error) {
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

func joined(protocols []Protocol) string {
	var all []string
	for _, p := range protocols {
		all = append(all, string(p))
	}
	return strings.Join(all, " ")
}

func split(text string) (protocols []Protocol) {
	for _, p := range strings.Fields(text) {
		protocols = append(protocols, Protocol(p))
	}
	return protocols
}

// grouped is how an app password is shown; appToken reads it.
func grouped(token string) string {
	var b strings.Builder
	for i, letter := range token {
		if i > 0 && i%appGroup == 0 && i < len(token)-1 {
			b.WriteByte('-')
		}
		b.WriteRune(letter)
	}
	return b.String()
}

// appToken reads what may be an app password, as people copy and type it. A
// mailbox's own password never looks like one: that has a letter in upper case
// and another character.
func appToken(password string) (token string, ok bool) {
	if len(password) > 2*appLetters {
		return "", false
	}
	token = strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(password))
	return token, len(token) == appLetters && secret.WellFormed("", token)
}

// verifyApp finds the login whose app password this is.
func (m *Mailboxes) verifyApp(ctx context.Context, a *attempt, may func(login) bool, token string) (*login, error) {
	apps, err := db.All(ctx, m.db, byApp.With(secret.Hash(token), a.key), scanAppLogin)
	if err != nil || len(apps) == 0 || !may(apps[0]) {
		return nil, err
	}
	m.learnApp(ctx, m.requester(a), apps[0], token)
	return &apps[0], nil
}

func scanAppLogin(r db.Row) (l login, err error) {
	var app db.ID
	var name, protocols string
	l.Mailbox, err = scan(more{r, []any{&app, &name, &protocols, &l.scram}})
	l.app, l.appName, l.protocols = app, name, split(protocols)
	return l, err
}
