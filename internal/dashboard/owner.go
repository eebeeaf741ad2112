// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/user"
)

// ownerLife is for how long the owner of a mailbox stays signed in. A new
// password, and whatever else ends log-ins, ends it before.
const ownerLife = 12 * time.Hour

const ownerCookie = "mailbox"

// owner finds the mailbox whose owner visits: who has signed in with its
// address and password. Everybody else is sent to sign in.
func (d *Dashboard) owner(v *visit) (mailbox.Mailbox, error) {
	m, ok, err := d.signedIn(v)
	if err == nil && !ok {
		if err = v.signedOut(); errors.Is(err, errSignIn) {
			v.redirect("/mailbox/sign-in")
			err = errAnswered
		}
	}
	v.ownedBy(m)
	if err == nil {
		err = v.meant(v.form.Get(madeFor))
	}
	if err == nil {
		err = v.begin()
	}
	return m, err
}

// ownedBy makes the visit one of a mailbox's owner. It is nothing of whoever may have
// signed in to the dashboard with the same browser; what is done is told in the
// activity of the account, though the owner is none of its people.
func (v *visit) ownedBy(m mailbox.Mailbox) {
	v.known, v.owner = false, m.ID
	v.in = user.Session{Account: m.Account, User: user.User{Email: m.Address}}
}

// ownersTicket is what who has signed in to a mailbox brings; nothing is looked up.
func (v *visit) ownersTicket() (ticket, bool) {
	c, err := v.r.Cookie(v.cookie(ownerCookie))
	if err != nil {
		return ticket{}, false
	}
	return v.d.open(ownerTicket, c.Value)
}

func (d *Dashboard) signedIn(v *visit) (mailbox.Mailbox, bool, error) {
	t, ok := v.ownersTicket()
	if !ok {
		return mailbox.Mailbox{}, false, nil
	}
	m, err := d.Mailboxes.ByID(v.ctx, t.Mailbox)
	if fault.Is(err, fault.NotFound) {
		return mailbox.Mailbox{}, false, nil
	}
	if err != nil || m.Generation() != t.Generation {
		return mailbox.Mailbox{}, false, err
	}
	err = d.Mailboxes.Current(v.ctx, m)
	if fault.Is(err, fault.Unknown) {
		return mailbox.Mailbox{}, false, nil
	}
	return m, err == nil, err
}

// enter signs somebody in as a mailbox's owner.
func (d *Dashboard) enter(v *visit, m mailbox.Mailbox) {
	v.set(ownerCookie, d.seal(ownerTicket, ticket{m.ID, m.Generation(), d.Now().Add(ownerLife)}), ownerLife)
}

func (d *Dashboard) ownerForm(v *visit) (page, error) {
	if _, ok, err := d.signedIn(v); err != nil {
		return page{}, err
	} else if ok && v.wrong == nil {
		v.redirect("/mailbox")
		return page{}, errAnswered
	}
	v.known = false
	return page{Template: "mailbox-sign-in", Title: "Sign in to your mailbox"}, nil
}

func (d *Dashboard) ownerSignIn(v *visit) (done, error) {
	v.known = false
	m, err := d.Mailboxes.Authenticate(v.ctx, mailbox.Web, v.text("address"), v.form.Get("password"), client(v.r))
	if err != nil {
		return done{}, err
	}
	d.enter(v, m)
	return done{To: "/mailbox"}, nil
}

func (d *Dashboard) ownerSignOut(v *visit) (done, error) {
	v.set(ownerCookie, "", -1)
	return done{To: "/mailbox/sign-in"}, nil
}

// shownOwn is what the page of a mailbox's owner shows.
type shownOwn struct {
	shownSetup
	Away shownAway
}

// own is the page of a mailbox's owner.
func (d *Dashboard) own(v *visit) (page, error) {
	m, err := d.owner(v)
	if err != nil {
		return page{}, err
	}
	var s shownOwn
	if s.shownSetup, err = d.setupOf(m, "/mailbox"); err != nil {
		return page{}, err
	}
	s.Away, err = d.awayOf(v, m, "/mailbox")
	return page{Template: "own", Title: m.Address, Owner: m.Address, Data: s}, err
}

func (d *Dashboard) ownCheck(v *visit) (done, error) {
	p, err := d.own(v)
	if err != nil {
		return done{}, err
	}
	s := p.Data.(shownOwn)
	s.shownSetup, err = d.tried(v, s.shownSetup)
	p.Data = s
	return done{Show: &p}, err
}

func (d *Dashboard) ownProfile(v *visit) error {
	m, err := d.owner(v)
	if err != nil {
		return err
	}
	return d.sendProfile(v, m, "")
}

// ownPassword changes the password of who knows the present one, and keeps this
// browser signed in.
func (d *Dashboard) ownPassword(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	same, err := d.Mailboxes.Authenticate(v.ctx, mailbox.Web, m.Address, v.form.Get("current"), client(v.r))
	if fault.Is(err, fault.Unknown) || err == nil && same.ID != m.ID {
		var bad fault.Fields
		bad.Add("current", "wrong", "This is not your present password.")
		return done{}, bad.Err()
	}
	if err != nil {
		return done{}, err
	}
	if m, err = d.Mailboxes.ChangePassword(v.ctx, same, v.form.Get("password")); err != nil {
		return done{}, err
	}
	d.enter(v, m)
	return done{To: "/mailbox", Told: "Changed your password. Your mail clients ask for the new one."}, nil
}
