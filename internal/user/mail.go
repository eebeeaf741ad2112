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

// Mail sends a mail of the service itself, and returns once it is accepted.
type Mail func(ctx context.Context, to, subject, text string) error

// How much mail of the service may be sent, so that it annoys nobody: to an
// address, at the wish of one user, and at that of all users of an account.
const (
	resetsPerHour          = 6
	confirmsPerDay         = 6
	noticesPerDay          = 50
	invitationsTo          = 50 // a day, so that no few accounts keep those of others away
	invitationsToByOne     = 3  // a day, from one account
	invitationsByUser      = 100
	invitationsFrom        = 200
	day                    = 24 * time.Hour
	maxShown           int = 60 // characters of a name in a mail
)

// counter is a limit of mails of one kind in a window.
type counter struct {
	kind, who string
	most      int
	window    time.Duration
}

// key is the name of what is counted. The tag of an address does not make it
// another: all of them are one person's.
func (c counter) key() string {
	if a, err := address.Parse(c.who); err == nil {
		base, _ := a.Base()
		return c.kind + " " + base.PersonKey()
	}
	return c.kind + " " + c.who
}

func invitationsOf(by Session, to string) []counter {
	return []counter{
		{"invitations to", to, invitationsTo, day},
		{"invitations from " + by.Account.String() + " to", to, invitationsToByOne, day},
		{"invitations by", by.User.ID.String(), invitationsByUser, day},
		{"invitations from", by.Account.String(), invitationsFrom, day},
	}
}

var (
	reserveMail = db.SQL(`INSERT INTO service_mail (key, ends_at, sent) VALUES ($1, $2, 1)
		ON CONFLICT (key, ends_at) DO UPDATE SET sent = service_mail.sent + 1 WHERE service_mail.sent < $3 RETURNING sent`)
	returnMail     = db.SQL(`UPDATE service_mail SET sent = sent - 1 WHERE key = $1 AND ends_at = $2 AND sent > 0`)
	mailsForgotten = db.SQL(`DELETE FROM service_mail WHERE (key, ends_at) IN (SELECT key, ends_at FROM service_mail WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)`)
	dropTicket     = db.SQL(`DELETE FROM dashboard_ticket WHERE hash = $1`)
)

// reserve counts a mail before it is sent, and returns what takes that back. Over
// a limit it is fault.Limited, and nothing is counted.
func (u *Users) reserve(ctx context.Context, all ...counter) (giveBack func() error, err error) {
	now := u.Now()
	back := make([]db.Statement, len(all))
	// In one order, so that those who reserve the same wait for each other.
	all = slices.SortedFunc(slices.Values(all), func(a, b counter) int { return strings.Compare(a.key(), b.key()) })
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		for i, c := range all {
			ends := db.Micros(now.Truncate(c.window).Add(c.window))
			back[i] = returnMail.With(c.key(), ends)
			err := tx.One(ctx, reserveMail.With(c.key(), ends, c.most), new(int64))
			if noRow(err) {
				err = fault.New(fault.Limited, "too_many_mails", "Too many mails of this kind were sent. Try again later.")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return func() error {
		return u.DB.Tx(context.WithoutCancel(ctx), func(tx *db.Tx) error { return exec(ctx, tx, back...) })
	}, err
}

// letter is what a mail says.
type letter struct{ subject, text string }

// send sends a mail with a link. If it is not accepted the link ends, and so does
// the error say.
func (u *Users) send(ctx context.Context, to string, l letter, token string, giveBack func() error) error {
	err := u.Mail(ctx, to, l.subject, l.text)
	if err == nil {
		return nil
	}
	err = fault.Wrap(err, fault.Unavailable, "mail_not_sent", "The mail could not be sent, so there is no link. Try again later.")
	return errors.Join(err, u.exec(context.WithoutCancel(ctx), dropTicket.With(secret.Hash(token))), giveBack())
}

// Notify tells a user of something by a mail of the service.
func (u *Users) Notify(ctx context.Context, who User, subject, text string) error {
	giveBack, err := u.reserve(ctx, counter{"notice", who.Email, noticesPerDay, day})
	if err != nil {
		return err
	}
	if err := u.Mail(ctx, who.Address, subject, text); err != nil {
		return errors.Join(err, giveBack())
	}
	return nil
}

func invitation(u *Users, by Session, account, token string) letter {
	what := "an account"
	if name := plain(account); name != "" {
		what = "the account “" + name + "”"
	}
	return letter{"Invitation to " + what, plain(by.User.Name) + " (" + by.User.Email + ") invites you to " + what + " at " + u.Issuer +
		".\n\nTo join, follow this link within seven days:\n\n" + u.Base + "/join/" + token + "\n\nIf you do not know who invites you, you need do nothing.\n"}
}

func reset(u *Users, token string) letter {
	return letter{"Choose a new password", "Hello,\n\nfollow this link to choose a new password for " + u.Issuer + ". It works once, within an hour:\n\n" +
		u.Base + "/reset/" + token + "\n\nIf you did not ask for it, you need do nothing.\n"}
}

func confirmation(u *Users, token string) letter {
	return letter{"Confirm your e-mail address", "Hello,\n\nsomebody signs in to " + u.Issuer + " with this address. If that is you, confirm the address by this link, within a day:\n\n" +
		u.Base + "/confirm/" + token + "\n\nIf it is not you, do nothing: the link is of use only to who reads this mail. To sign in there yourself, choose a password of your own:\n\n" +
		u.Base + "/forgotten\n"}
}

// plain is a name that somebody has chosen as it may stand in a mail of the service
// to another person: with nothing in it that a mail program makes a link of.
func plain(name string) string {
	letters := []rune(name)
	var out []rune
	for i, r := range letters {
		inside := i+1 < len(letters) && !unicode.IsSpace(letters[i+1])
		switch {
		case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsDigit(r), strings.ContainsRune(" -'’,&()", r), r == '.' && !inside:
			out = append(out, r)
		}
	}
	if len(out) > maxShown {
		out = append(out[:maxShown], '…')
	}
	return strings.TrimSpace(string(out))
}
