// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/web"
)

// isSecretPath reports whether a path contains a link token.
func isSecretPath(r *http.Request) bool {
	for _, below := range []string{"/join/", "/reset/", "/confirm/", "/phone/"} {
		if strings.HasPrefix(r.URL.Path, below) {
			return true
		}
	}
	return false
}

func (d *Dashboard) forgotPasswordForm(*requestContext) (page, error) {
	return page{Template: "forgotten", Title: "Choose a new password", Data: false}, nil
}

// requestPasswordReset sends a link to choose a new password. Its response doesn't reveal whether
// the user exists.
func (d *Dashboard) requestPasswordReset(v *requestContext) (actionResult, error) {
	if err := d.Users.ChargeMailRequest(v.ctx, v.formText("email"), web.ClientAddr(v.r)); err != nil {
		return actionResult{}, err
	}
	who, err := d.Users.ByEmail(v.ctx, v.formText("email"))
	if err == nil {
		// In the background, since the response time would reveal it.
		go d.sendPasswordReset(context.WithoutCancel(v.ctx), who)
	}
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return actionResult{Page: &page{Template: "forgotten", Title: "Look at your mail", Data: true}}, err
}

func (d *Dashboard) sendPasswordReset(ctx context.Context, who user.User) {
	if err := d.Users.SendResetLink(ctx, who); err != nil {
		d.Log.WarnContext(ctx, "reset link not sent", "user", who.ID, "err", err)
	}
}

// accountClaim is an account that a user may keep or leave when proving ownership of an address.
type accountClaim struct{ Field, Name, Role string }

// accountClaims lists the accounts about which the holder of a link must decide.
func (d *Dashboard) accountClaims(v *requestContext, t user.Link) (list []accountClaim, err error) {
	of, err := d.Users.UnverifiedMemberships(v.ctx, t)
	for _, m := range of {
		acc, err := d.Accounts.Get(v.ctx, m.Account)
		if err != nil {
			return nil, err
		}
		list = append(list, accountClaim{"keep-" + m.Account.String(), accountName(acc), string(m.Role)})
	}
	return list, err
}

// accountName returns the display name of an account.
func accountName(acc account.Account) string {
	if acc.Name != "" {
		return acc.Name
	}
	return acc.Email
}

// claimDecisions reads the decisions about claims from the form.
func (v *requestContext) claimDecisions() map[db.ID]bool {
	keep := map[db.ID]bool{}
	for field, said := range v.form {
		if text, ok := strings.CutPrefix(field, "keep-"); ok {
			if id, err := db.ParseID(text); err == nil && (said[0] == "yes" || said[0] == "no") {
				keep[id] = said[0] == "yes"
			}
		}
	}
	return keep
}

func (d *Dashboard) resetPasswordForm(v *requestContext) (page, error) {
	t, err := d.Users.FindLink(v.ctx, v.r.PathValue("token"))
	if err == nil && t.Kind != user.LinkReset {
		err = notFound()
	}
	if err != nil {
		return page{}, err
	}
	claims, err := d.accountClaims(v, t)
	return page{Template: "reset", Title: "Choose a new password", Data: struct {
		Ticket user.Link
		Claims []accountClaim
	}{t, claims}}, err
}

func (d *Dashboard) resetPassword(v *requestContext) (actionResult, error) {
	v.signedIn = false // the page and the log concern the link's user, not a user who is signed in here
	t, err := d.Users.FindLink(v.ctx, v.r.PathValue("token"))
	if err == nil {
		err = d.Users.ResetPassword(v.ctx, v.r.PathValue("token"), v.form.Get("password"), v.claimDecisions())
	}
	if err != nil {
		return actionResult{}, err
	}
	// The password is set, even if the browser has disconnected.
	if err := d.notifyPasswordReset(context.WithoutCancel(v.ctx), t.User, web.ClientAddr(v.r)); err != nil {
		d.Log.ErrorContext(v.ctx, "that a password was chosen by a link could not be told", "user", t.User, "error", err)
	}
	return actionResult{RedirectTo: "/sign-in", Summary: "The new password is set. Sign in with it."}, nil
}

// notifyPasswordReset reports that a password was reset by a link, since anybody with access to the
// link's mailbox could have done it. It adds an entry to the activity of the user's accounts. It
// also mails the user and the other owners of accounts that the user owns.
func (d *Dashboard) notifyPasswordReset(ctx context.Context, id db.ID, from netip.Addr) error {
	who, err := d.Users.Get(ctx, id)
	if err != nil {
		return err
	}
	of, err := d.Users.Memberships(ctx, who.ID)
	if err != nil {
		return err
	}
	told := map[db.ID]bool{who.ID: true}
	tell := func(to user.User) error {
		return d.Users.Notify(ctx, to, "A new password of "+who.Email, "Hello,\n\n"+who.Email+" has a new password for "+d.Host+
			". It was chosen from "+from.String()+" by a link such as is sent to that address.\n\nIf you do not expect that, find out who reads its mail.\n")
	}
	for _, m := range of {
		err = errors.Join(err, d.Users.RecordAudit(ctx, user.Session{Account: m.Account, User: who}, from, "Chose a new password by a link."))
		if m.Role != user.RoleOwner {
			continue
		}
		others, failed := d.Users.Members(ctx, m.Account)
		err = errors.Join(err, failed)
		for _, o := range others {
			if o.Role == user.RoleOwner && !told[o.ID] {
				told[o.ID] = true
				err = errors.Join(err, tell(o.User))
			}
		}
	}
	return errors.Join(err, tell(who))
}

// joinPage is the data of the page behind a setup link or an invitation.
type joinPage struct {
	Ticket user.Link
	Name   string // name of the account
	Path   string
	Email  string // address that the operator must confirm
	Accept bool   // whether the signed-in user can join directly
	Claims []accountClaim
}

func (d *Dashboard) joinForm(v *requestContext) (page, error) {
	t, err := d.Users.FindLink(v.ctx, v.r.PathValue("token"))
	if err != nil {
		return page{}, err
	}
	j := joinPage{Ticket: t, Path: "/join/" + v.r.PathValue("token")}
	if t.Kind != user.LinkSetup && t.Kind != user.LinkInvite {
		return page{}, notFound()
	}
	if t.Kind == user.LinkSetup {
		j.Email = d.Postmaster
	}
	if t.Kind == user.LinkInvite {
		acc, err := d.Accounts.Get(v.ctx, t.Account)
		if err != nil {
			return page{}, err
		}
		j.Name = accountName(acc)
		j.Accept = v.signedIn && !v.session.NeedsSecondFactor && v.session.User.Email == t.Email
		if !j.Accept {
			if j.Claims, err = d.accountClaims(v, t); err != nil {
				return page{}, err
			}
		}
	}
	return page{Template: "join", Title: "Welcome", Data: j}, nil
}

// join creates the user that a link invites. The first user of the service becomes its operator,
// with their own account.
func (d *Dashboard) join(v *requestContext) (actionResult, error) {
	token := v.r.PathValue("token")
	t, err := d.Users.FindLink(v.ctx, token)
	if err != nil {
		return actionResult{}, err
	}
	n := user.CreateParams{Email: v.formText("email"), Name: v.formText("name"), Password: v.form.Get("password"), KeepMemberships: v.claimDecisions()}
	var more []db.ID
	if t.Kind == user.LinkSetup {
		if err := n.Check(); err != nil {
			return actionResult{}, err
		}
		acc, err := d.Accounts.ByEmail(v.ctx, n.Email)
		if fault.Is(err, fault.NotFound) {
			acc, err = d.Accounts.Create(v.ctx, n.Email, "")
		}
		if err != nil {
			return actionResult{}, err
		}
		more = []db.ID{account.OperatorAccount, acc.ID}
	}
	who, err := d.Users.SignUp(v.ctx, token, n, more...)
	if err != nil {
		return actionResult{}, err
	}
	if !who.Verified() { // the link may arrive later: the profile has a button to send it again
		if err := d.Users.SendConfirmationLink(context.WithoutCancel(v.ctx), who); err != nil {
			d.Log.WarnContext(v.ctx, "confirmation link not sent", "user", who.ID, "err", err)
		}
	}
	in, session, err := d.Users.SignIn(v.ctx, who.Email, n.Password, web.ClientAddr(v.r), v.r.UserAgent())
	if err != nil { // for example, too many attempts from the network; the link is used up
		d.Log.WarnContext(v.ctx, "who has joined could not be signed in", "request", v.requestID(), "user", who.ID, "error", err)
		v.signedIn = false
		return actionResult{RedirectTo: "/sign-in", Summary: "You have joined. Sign in with your new password."}, nil
	}
	v.setCookie("session", session, sessionLifetime)
	return v.afterSignIn(in)
}

func (d *Dashboard) acceptInvitation(v *requestContext) (actionResult, error) {
	joined, err := d.Users.AcceptInvitation(v.ctx, v.r.PathValue("token"), v.session.User)
	if err != nil {
		return actionResult{}, err
	}
	if err := d.Users.SwitchAccount(v.ctx, v.session, joined); err != nil {
		return actionResult{}, err
	}
	v.session.Account = joined // the joined account gets the audit log entry
	return actionResult{RedirectTo: "/", Summary: "Joined the account."}, nil
}

// confirmPage is the data of the page behind a link that confirms an address.
type confirmPage struct {
	Email, Path string
	Mine        bool // whether the signed-in user requested it
}

func (d *Dashboard) confirmAddressForm(v *requestContext) (page, error) {
	t, err := d.Users.FindLink(v.ctx, v.r.PathValue("token"))
	if err == nil && t.Kind != user.LinkConfirmation {
		err = notFound()
	}
	return page{Template: "confirm", Title: "Confirm your e-mail address", Data: confirmPage{
		Email: t.Email, Path: v.r.URL.Path, Mine: v.signedIn && !v.session.NeedsSecondFactor && v.session.User.ID == t.User,
	}}, err
}

func (d *Dashboard) confirmAddress(v *requestContext) (actionResult, error) {
	return actionResult{RedirectTo: "/profile", Summary: "Confirmed the e-mail address."}, d.Users.ConfirmAddress(v.ctx, v.session, v.r.PathValue("token"))
}

func (d *Dashboard) sendConfirmation(v *requestContext) (actionResult, error) {
	if v.session.User.Verified() {
		return actionResult{RedirectTo: "/profile"}, nil
	}
	return actionResult{RedirectTo: "/profile", Summary: "Sent a link to " + v.session.User.Address + "."}, d.Users.SendConfirmationLink(v.ctx, v.session.User)
}
