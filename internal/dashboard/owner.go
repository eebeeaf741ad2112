// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/web"
)

// ownerSessionLifetime is how long a mailbox owner stays signed in. A new password, like any other
// change that ends log-ins, ends the session earlier.
const ownerSessionLifetime = 12 * time.Hour

const ownerCookie = "mailbox"

// requireOwner returns the mailbox whose owner is signed in with its address and password. It
// redirects all others to the sign-in page.
func (d *Dashboard) requireOwner(v *requestContext) (mailbox.Mailbox, error) {
	m, ok, err := d.signedInMailbox(v)
	if err == nil && !ok {
		if err = v.signedOutError(); errors.Is(err, errSignInRequired) {
			v.redirect("/mailbox/sign-in")
			err = errResponded
		}
	}
	v.setMailboxOwner(m)
	if err == nil {
		err = v.checkFormOwner(v.form.Get(formOwnerField))
	}
	if err == nil {
		err = v.beginAudit()
	}
	return m, err
}

// setMailboxOwner makes the request one of a mailbox owner, independent of a dashboard session in
// the same browser. The owner's actions are in the account's activity, although the owner is not a
// member.
func (v *requestContext) setMailboxOwner(m mailbox.Mailbox) {
	v.signedIn, v.ownerMailbox = false, m.ID
	v.session = user.Session{Account: m.Account, User: user.User{Email: m.Address}}
}

// ownerToken returns the mailbox owner's token from the cookie. It checks no stored state.
func (v *requestContext) ownerToken() (signedToken, bool) {
	c, err := v.r.Cookie(v.cookieName(ownerCookie))
	if err != nil {
		return signedToken{}, false
	}
	return v.d.verifyToken(ownerTokenKind, c.Value)
}

func (d *Dashboard) signedInMailbox(v *requestContext) (mailbox.Mailbox, bool, error) {
	t, ok := v.ownerToken()
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
	err = d.Mailboxes.CheckLogin(v.ctx, m)
	if fault.Is(err, fault.Unauthenticated) {
		return mailbox.Mailbox{}, false, nil
	}
	return m, err == nil, err
}

// signInOwner signs in a mailbox owner.
func (d *Dashboard) signInOwner(v *requestContext, m mailbox.Mailbox) {
	v.setCookie(ownerCookie, d.signToken(ownerTokenKind, signedToken{m.ID, m.Generation(), d.Now().Add(ownerSessionLifetime)}), ownerSessionLifetime)
}

func (d *Dashboard) ownerSignInForm(v *requestContext) (page, error) {
	if _, ok, err := d.signedInMailbox(v); err != nil {
		return page{}, err
	} else if ok && v.fieldErrors == nil {
		v.redirect("/mailbox")
		return page{}, errResponded
	}
	v.signedIn = false
	return page{Template: "mailbox-sign-in", Title: "Sign in to your mailbox"}, nil
}

func (d *Dashboard) ownerSignIn(v *requestContext) (actionResult, error) {
	v.signedIn = false
	m, err := d.Mailboxes.Authenticate(v.ctx, mailbox.Web, v.formText("address"), v.form.Get("password"), web.ClientAddr(v.r))
	if err != nil {
		return actionResult{}, err
	}
	d.signInOwner(v, m)
	return actionResult{RedirectTo: "/mailbox"}, nil
}

func (d *Dashboard) ownerSignOut(v *requestContext) (actionResult, error) {
	v.setCookie(ownerCookie, "", -1)
	return actionResult{RedirectTo: "/mailbox/sign-in"}, nil
}

// ownerPage is the data of a mailbox owner's page.
type ownerPage struct {
	setupPage
	Away replyAndForwardingForms
}

// ownerHome shows a mailbox owner's page.
func (d *Dashboard) ownerHome(v *requestContext) (page, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return page{}, err
	}
	var s ownerPage
	if s.setupPage, err = d.newSetupPage(m, "/mailbox"); err != nil {
		return page{}, err
	}
	s.Away, err = d.loadReplyAndForwardingForms(v, m, "/mailbox")
	return page{Template: "own", Title: m.Address, Owner: m.Address, Data: s}, err
}

func (d *Dashboard) checkOwnerSetup(v *requestContext) (actionResult, error) {
	p, err := d.ownerHome(v)
	if err != nil {
		return actionResult{}, err
	}
	s := p.Data.(ownerPage)
	s.setupPage, err = d.runSetupCheck(v, s.setupPage)
	p.Data = s
	return actionResult{Page: &p}, err
}

func (d *Dashboard) ownerProfile(v *requestContext) error {
	m, err := d.requireOwner(v)
	if err != nil {
		return err
	}
	return d.writeAppleProfile(v, m, "")
}

// changeOwnerPassword changes the password after checking the current one, and keeps this browser
// signed in.
func (d *Dashboard) changeOwnerPassword(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	same, err := d.Mailboxes.Authenticate(v.ctx, mailbox.Web, m.Address, v.form.Get("current"), web.ClientAddr(v.r))
	if fault.Is(err, fault.Unauthenticated) || err == nil && same.ID != m.ID {
		var bad fault.FieldErrors
		bad.Add("current", "wrong", "This is not your present password.")
		return actionResult{}, bad.Err()
	}
	if err != nil {
		return actionResult{}, err
	}
	if m, err = d.Mailboxes.ChangePassword(v.ctx, same, v.form.Get("password")); err != nil {
		return actionResult{}, err
	}
	d.signInOwner(v, m)
	return actionResult{RedirectTo: "/mailbox", Summary: "Changed your password. Your mail clients ask for the new one."}, nil
}
