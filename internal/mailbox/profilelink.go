// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

const (
	// ProfileLinkTTL is how long a profile link works.
	ProfileLinkTTL = 10 * time.Minute

	maxProfileLinks = 20 // links of a mailbox created within ProfileLinkTTL
	linkPrefix      = "mpl_"
	linkRandomBytes = 20 // bytes
)

var (
	insertLinkQuery = db.SQL(`INSERT INTO profile_link (id, mailbox, generation, name, hash, expires_at, used_at)
		SELECT $1, m.id, m.generation, CAST($3 AS TEXT), $4, $5, 0 FROM mailbox m
		WHERE m.id = $2 AND m.account = $7 AND m.deleted_at = 0 AND (SELECT COUNT(*) FROM profile_link WHERE mailbox = $2) < $6`)
	deleteExpiredLinksQuery = db.SQL(`DELETE FROM profile_link WHERE expires_at <= $1`)
	deleteLinksQuery        = db.SQL(`DELETE FROM profile_link WHERE mailbox = $1`)
	linkTargetQuery         = db.SQL(`SELECT l.mailbox, l.name FROM profile_link l JOIN mailbox m ON m.id = l.mailbox AND m.generation = l.generation
		WHERE l.hash = $1 AND l.used_at = 0 AND l.expires_at > $2 AND m.deleted_at = 0 AND m.status = $3`)
	// The first caller redeems the link.
	redeemLinkQuery = db.SQL(`UPDATE profile_link SET used_at = $2 WHERE hash = $1 AND used_at = 0 AND expires_at > $2
			AND EXISTS (SELECT 1 FROM mailbox m WHERE m.id = profile_link.mailbox AND m.generation = profile_link.generation AND m.deleted_at = 0 AND m.status = $3)
		RETURNING mailbox, name`)
)

// CreateProfileLink creates the token of a link with which a device gets an app password of a
// mailbox, called name. It works once and for ProfileLinkTTL. A new password of the mailbox
// invalidates it.
func (m *Mailboxes) CreateProfileLink(ctx context.Context, account, mailbox db.ID, name string) (token string, err error) {
	var bad fault.FieldErrors
	name = parseAppName(&bad, name)
	if err := bad.Err(); err != nil {
		return "", err
	}
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return "", err
	}
	token = secret.NewToken(linkPrefix, linkRandomBytes)
	now := m.now()
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "profile links", mailbox); err != nil {
			return err
		}
		if err := tx.Run(ctx, deleteExpiredLinksQuery.With(db.Micros(now))); err != nil {
			return err
		}
		insert := insertLinkQuery.With(m.db.NewID(), mailbox, name, secret.HashToken(token), db.Micros(now.Add(ProfileLinkTTL)), maxProfileLinks, account)
		return tx.ExecOrFail(ctx, insert, fault.New(fault.RateLimited, "too_many_links", "There were too many links within a few minutes. Wait a little."))
	})
	return token, err
}

// FindProfileLink returns the mailbox and the device name of a link, without redeeming it. A
// redeemed or expired link is a fault.NotFound.
func (m *Mailboxes) FindProfileLink(ctx context.Context, token string) (box Mailbox, name string, err error) {
	var id db.ID
	err = m.db.One(ctx, linkTargetQuery.With(secret.HashToken(token), db.Micros(m.now()), StatusActive), &id, &name)
	if err == nil {
		box, err = m.ByID(ctx, id)
	}
	if errors.Is(err, db.ErrNoRow) || fault.Is(err, fault.NotFound) {
		return Mailbox{}, "", linkExpiredError()
	}
	return box, name, err
}

// RedeemProfileLink creates the app password of a link. If several callers have the link, only the
// first gets a password.
func (m *Mailboxes) RedeemProfileLink(ctx context.Context, token string) (box Mailbox, made AppPassword, password string, err error) {
	if box, _, err = m.FindProfileLink(ctx, token); err != nil {
		return box, made, "", err
	}
	fresh, err := m.newAppSecret(ctx, box)
	if err != nil {
		return box, made, "", err
	}
	made = AppPassword{ID: m.db.NewID(), Mailbox: box.ID, Protocols: []Protocol{IMAP, SMTP}, CreatedAt: m.now().UTC()}
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		redeem := redeemLinkQuery.With(secret.HashToken(token), db.Micros(made.CreatedAt), StatusActive)
		if err := db.IfNoRow(tx.One(ctx, redeem, new(db.ID), &made.Name), linkExpiredError()); err != nil {
			return err
		}
		return m.insertAppPassword(ctx, tx, box.Account, made, fresh)
	})
	return box, made, formatAppPassword(fresh.token), err
}

func linkExpiredError() error {
	return fault.New(fault.NotFound, "link_over", "This link works once, and for ten minutes. Make a new one on the page that showed it.")
}
