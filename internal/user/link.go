// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// LinkKind is the purpose of a link.
type LinkKind string

// The kinds of links.
const (
	LinkSetup        LinkKind = "setup"   // the service has no user yet
	LinkInvite       LinkKind = "invite"  // join an account
	LinkReset        LinkKind = "reset"   // choose a new password
	LinkConfirmation LinkKind = "confirm" // confirm that the user receives the address's mail
)

// Link is a link that can be used once.
type Link struct {
	ID      db.ID
	Kind    LinkKind
	Account db.ID
	User    db.ID
	Email   string // address of the recipient, in the form for comparison; "" for anyone with the link
	Address string // the same, as given
	Role    Role
	// ProvesAddress means that the link was only sent to the address by mail, so that using it
	// proves access to that mail.
	ProvesAddress  bool
	Inviter        db.ID // inviting user; 0: an operator at the command line
	InviterAccount db.ID // the account in which the inviter has that right
	CreatedAt      time.Time
	ExpiresAt      time.Time
}

const (
	linkTokenPrefix     = "mst_"
	inviteLinkTTL       = 7 * 24 * time.Hour
	resetLinkTTL        = time.Hour
	confirmationLinkTTL = 24 * time.Hour
	setupLinkTTL        = 24 * time.Hour
)

// linkColumns are the columns that scanLink scans.
const linkColumns = `id, kind, account, person, email, address, role, proves, confirms, inviter, inviter_of, created_at, expires_at`

var (
	insertLinkQuery = db.SQL(`INSERT INTO dashboard_ticket (id, hash, kind, account, person, email, address, role, proves, confirms, inviter, inviter_of, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`)
	linkByHashQuery = db.SQL(`SELECT ` + linkColumns + ` FROM dashboard_ticket WHERE hash = $1 AND expires_at > $2`)
	deleteLinkQuery = db.SQL(`DELETE FROM dashboard_ticket WHERE id = $1`)
	pruneLinksQuery = db.SQL(`DELETE FROM dashboard_ticket WHERE id IN (SELECT id FROM dashboard_ticket WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`)
)

// newLink returns the token of a link, and the statement that stores the link.
func (u *Users) newLink(t Link, life time.Duration) (token string, insert db.Statement) {
	token = secret.NewToken(linkTokenPrefix, 20)
	now := u.Now()
	kind := t.Kind
	if kind == LinkConfirmation { // the table's CHECK doesn't allow this kind
		kind = LinkReset
	}
	return token, insertLinkQuery.With(u.DB.NewID(), secret.HashToken(token), string(kind), t.Account, t.User, t.Email, t.Address, string(t.Role),
		boolToInt(t.ProvesAddress), boolToInt(t.Kind == LinkConfirmation), t.Inviter, t.InviterAccount, db.Micros(now), db.Micros(now.Add(life)))
}

func (u *Users) issueLink(ctx context.Context, t Link, life time.Duration) (token string, err error) {
	token, insert := u.newLink(t, life)
	return token, u.DB.Run(ctx, insert)
}

// FindLink returns the link of a token. If it was used or has expired, it returns fault.NotFound.
func (u *Users) FindLink(ctx context.Context, token string) (Link, error) {
	gone := fault.New(fault.NotFound, "link_over", "This link was used already, or is too old. Ask for a new one.")
	if !secret.IsWellFormedToken(linkTokenPrefix, token) {
		return Link{}, gone
	}
	return db.Find(ctx, u.DB, linkByHashQuery.With(secret.HashToken(token), db.Micros(u.Now())), gone, scanLink)
}

// redeemLink marks a link as used: of concurrent uses, only one succeeds.
func redeemLink(ctx context.Context, tx *db.Tx, t Link) error {
	return tx.ExecOrFail(ctx, deleteLinkQuery.With(t.ID), fault.New(fault.NotFound, "link_over", "This link was used already. Ask for a new one."))
}

func scanLink(r db.Row) (t Link, err error) {
	var proves, confirms int
	err = r.Scan(&t.ID, (*string)(&t.Kind), &t.Account, &t.User, &t.Email, &t.Address, (*string)(&t.Role), &proves, &confirms, &t.Inviter, &t.InviterAccount, db.TimeScanner(&t.CreatedAt), db.TimeScanner(&t.ExpiresAt))
	t.ProvesAddress = proves != 0
	if confirms != 0 {
		t.Kind = LinkConfirmation
	}
	return t, err
}
