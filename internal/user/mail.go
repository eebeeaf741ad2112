// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// MailFunc sends service mail, and returns after it is accepted.
type MailFunc func(ctx context.Context, to, subject, text string) error

// Limits of service mail, so that nobody is flooded: to an address, requested by one user, and by
// all users of an account.
const (
	resetsPerHour                       = 6
	confirmationsPerDay                 = 6
	noticesPerDay                       = 50
	invitationsPerAddress               = 50 // a day; high enough that a few accounts can't block the invitations of others
	invitationsPerAddressAndAccount     = 3  // a day, from one account
	invitationsPerUser                  = 100
	invitationsPerAccount               = 200
	day                                 = 24 * time.Hour
	maxNameInMail                   int = 60 // characters of a name in a mail
)

// mailLimit limits mails of one kind in a window.
type mailLimit struct {
	kind, who string
	most      int
	window    time.Duration
}

// key is the name of the counter. Tags of an address share one counter, because all belong to one
// person.
func (c mailLimit) key() string {
	if a, err := address.Parse(c.who); err == nil {
		base, _ := a.SplitTag()
		return c.kind + " " + base.PersonKey()
	}
	return c.kind + " " + c.who
}

func invitationLimits(by Session, to string) []mailLimit {
	return []mailLimit{
		{"invitations to", to, invitationsPerAddress, day},
		{"invitations from " + by.Account.String() + " to", to, invitationsPerAddressAndAccount, day},
		{"invitations by", by.User.ID.String(), invitationsPerUser, day},
		{"invitations from", by.Account.String(), invitationsPerAccount, day},
	}
}

var (
	reserveMailQuery = db.SQL(`INSERT INTO service_mail (key, ends_at, sent) VALUES ($1, $2, 1)
		ON CONFLICT (key, ends_at) DO UPDATE SET sent = service_mail.sent + 1 WHERE service_mail.sent < $3 RETURNING sent`)
	releaseMailQuery      = db.SQL(`UPDATE service_mail SET sent = sent - 1 WHERE key = $1 AND ends_at = $2 AND sent > 0`)
	pruneMailCountsQuery  = db.SQL(`DELETE FROM service_mail WHERE (key, ends_at) IN (SELECT key, ends_at FROM service_mail WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)`)
	deleteLinkByHashQuery = db.SQL(`DELETE FROM dashboard_ticket WHERE hash = $1`)
)

// reserveMail counts a mail before it is sent, and returns a function that undoes that. Over a
// limit it returns fault.RateLimited and counts nothing.
func (u *Users) reserveMail(ctx context.Context, all ...mailLimit) (giveBack func() error, err error) {
	now := u.Now()
	back := make([]db.Statement, len(all))
	// Lock in a fixed order, so that concurrent reservations wait instead of deadlocking.
	all = slices.SortedFunc(slices.Values(all), func(a, b mailLimit) int { return strings.Compare(a.key(), b.key()) })
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		for i, c := range all {
			ends := db.Micros(now.Truncate(c.window).Add(c.window))
			back[i] = releaseMailQuery.With(c.key(), ends)
			if err := tx.One(ctx, reserveMailQuery.With(c.key(), ends, c.most), new(int64)); err != nil {
				return db.IfNoRow(err, fault.New(fault.RateLimited, "too_many_mails", "Too many mails of this kind were sent. Try again later."))
			}
		}
		return nil
	})
	return func() error { return u.DB.Run(context.WithoutCancel(ctx), back...) }, err
}

// mailContent is the content of a mail.
type mailContent struct{ subject, text string }

// sendLink sends a mail with a link. If the mail is not accepted, the link is deleted and the error
// says so.
func (u *Users) sendLink(ctx context.Context, to string, l mailContent, token string, giveBack func() error) error {
	err := u.SendMail(ctx, to, l.subject, l.text)
	if err == nil {
		return nil
	}
	err = fault.Wrap(err, fault.Unavailable, "mail_not_sent", "The mail could not be sent, so there is no link. Try again later.")
	return errors.Join(err, u.DB.Run(context.WithoutCancel(ctx), deleteLinkByHashQuery.With(secret.HashToken(token))), giveBack())
}

// Notify sends a user a notification by service mail.
func (u *Users) Notify(ctx context.Context, who User, subject, text string) error {
	giveBack, err := u.reserveMail(ctx, mailLimit{"notice", who.Email, noticesPerDay, day})
	if err != nil {
		return err
	}
	if err := u.SendMail(ctx, who.Address, subject, text); err != nil {
		return errors.Join(err, giveBack())
	}
	return nil
}

func invitationMail(u *Users, by Session, account, token string) mailContent {
	what := "an account"
	if name := plainName(account); name != "" {
		what = "the account “" + name + "”"
	}
	return mailContent{"Invitation to " + what, plainName(by.User.Name) + " (" + by.User.Email + ") invites you to " + what + " at " + u.Issuer +
		".\n\nTo join, follow this link within seven days:\n\n" + u.BaseURL + "/join/" + token + "\n\nIf you do not know who invites you, you need do nothing.\n"}
}

func resetMail(u *Users, token string) mailContent {
	return mailContent{"Choose a new password", "Hello,\n\nfollow this link to choose a new password for " + u.Issuer + ". It works once, within an hour:\n\n" +
		u.BaseURL + "/reset/" + token + "\n\nIf you did not ask for it, you need do nothing.\n"}
}

func confirmationMail(u *Users, token string) mailContent {
	return mailContent{"Confirm your e-mail address", "Hello,\n\nsomebody signs in to " + u.Issuer + " with this address. If that is you, confirm the address by this link, within a day:\n\n" +
		u.BaseURL + "/confirm/" + token + "\n\nIf it is not you, do nothing: the link is of use only to who reads this mail. To sign in there yourself, choose a password of your own:\n\n" +
		u.BaseURL + "/forgotten\n"}
}

// plainName returns a user-chosen name for a service mail to another person, without anything that
// a mail program would turn into a link.
func plainName(name string) string {
	mails := []rune(name)
	var out []rune
	for i, r := range mails {
		inside := i+1 < len(mails) && !unicode.IsSpace(mails[i+1])
		switch {
		case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsDigit(r), strings.ContainsRune(" -'’,&()", r), r == '.' && !inside:
			out = append(out, r)
		}
	}
	if len(out) > maxNameInMail {
		out = append(out[:maxNameInMail], '…')
	}
	return strings.TrimSpace(string(out))
}
