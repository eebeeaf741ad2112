// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/web"
)

const sessionLifetime = 30 * 24 * time.Hour

// maxAuthPerNetwork is the maximum number of concurrent password and code checks per network. Each
// computes a password hash (throttle.LoginLimiter counts attempts).
const maxAuthPerNetwork = 10

// limitAuth wraps an action that checks a password or a code.
func (d *Dashboard) limitAuth(f action) action {
	return func(v *requestContext) (actionResult, error) {
		release, ok := d.authLimiter.Acquire(web.ClientAddr(v.r))
		if !ok {
			return actionResult{}, fault.New(fault.RateLimited, "too_many_tries", "Too many tries at the same time. Try again in a moment.")
		}
		defer release()
		return f(v)
	}
}

func (d *Dashboard) signInForm(v *requestContext) (page, error) {
	to := v.r.FormValue("to")
	if !isLocalPath(to) {
		to = "/"
	}
	if v.signedIn && !v.session.NeedsSecondFactor {
		v.redirect(to)
		return page{}, errResponded
	}
	any, err := d.Users.HasUsers(v.ctx)
	return page{Template: "sign-in", Title: "Sign in", Data: struct {
		To    string
		Empty bool
	}{to, !any}}, err
}

func (d *Dashboard) signIn(v *requestContext) (actionResult, error) {
	in, token, err := d.Users.SignIn(v.ctx, v.formText("email"), v.form.Get("password"), web.ClientAddr(v.r), v.r.UserAgent())
	if err != nil {
		return actionResult{}, err
	}
	v.setCookie("session", token, sessionLifetime)
	return v.afterSignIn(in)
}

// afterSignIn continues after a sign-in: to the second factor, or to the dashboard.
func (v *requestContext) afterSignIn(in user.Session) (actionResult, error) {
	to := v.formText("to")
	if !isLocalPath(to) {
		to = "/"
	}
	if in.NeedsSecondFactor {
		return actionResult{RedirectTo: "/sign-in/code?" + encodeQuery("to", to)}, nil
	}
	return actionResult{RedirectTo: to}, nil
}

func (d *Dashboard) signInCodeForm(v *requestContext) (page, error) {
	if !v.signedIn || !v.session.NeedsSecondFactor {
		v.redirect(v.signInURL())
		return page{}, errResponded
	}
	return page{Template: "sign-in-code", Title: "One more step", Data: v.r.FormValue("to")}, nil
}

// signInURL returns the URL for users without a pending code check: the sign-in page, which
// redirects users who are signed in.
func (v *requestContext) signInURL() string {
	return "/sign-in?" + encodeQuery("to", v.r.FormValue("to"))
}

func (d *Dashboard) checkSignInCode(v *requestContext) (actionResult, error) {
	switch {
	case !v.signedIn:
		return actionResult{RedirectTo: v.signInURL(), Summary: "The time for the code is over. Sign in once more."}, nil
	case !v.session.NeedsSecondFactor:
		return actionResult{RedirectTo: v.signInURL()}, nil
	}
	v.session.RemoteAddr = web.ClientAddr(v.r)
	err := d.Users.VerifySecondFactor(v.ctx, v.session, v.formText("code"))
	if fault.Is(err, fault.RateLimited) {
		go d.warnOfWrongCodes(context.WithoutCancel(v.ctx), v.session, web.ClientAddr(v.r)) // the response does not wait for the mail
	}
	if err != nil {
		return actionResult{}, err
	}
	v.session.NeedsSecondFactor = false
	return v.afterSignIn(v.session)
}

// warnOfWrongCodes warns a user, once a day, that somebody with the password entered too many wrong
// codes: by mail, and in the activity of the user's accounts.
func (d *Dashboard) warnOfWrongCodes(ctx context.Context, in user.Session, from netip.Addr) {
	may, err := d.Users.ShouldWarnOfWrongCodes(ctx, in.User.ID)
	if may && err == nil {
		err = d.sendCodeWarning(ctx, in.User, from)
	}
	if err != nil {
		d.Log.ErrorContext(ctx, "warning a user of wrong codes failed", "user", in.User.ID, "error", err)
	}
}

func (d *Dashboard) sendCodeWarning(ctx context.Context, who user.User, from netip.Addr) error {
	of, err := d.Users.Memberships(ctx, who.ID)
	if err != nil {
		return err
	}
	for _, m := range of {
		err = errors.Join(err, d.Users.RecordAudit(ctx, user.Session{Account: m.Account, User: who}, from, "Gave too many wrong codes of the second factor after the right password."))
	}
	failed := d.Users.Notify(ctx, who, "Wrong codes for "+who.Email, "Hello,\n\nsomebody signed in to "+d.Host+
		" as "+who.Email+" with the right password and then gave too many wrong codes, from "+from.String()+
		". They are not in.\n\nIf it was not you, choose a new password now: "+d.BaseURL+"/forgotten\n")
	return errors.Join(err, failed)
}

func (d *Dashboard) signOut(v *requestContext) (actionResult, error) {
	if v.signedIn {
		if err := d.Users.SignOut(v.ctx, v.session.User.ID, v.session.ID); err != nil {
			return actionResult{}, err
		}
	}
	v.setCookie("session", "", -1)
	return actionResult{RedirectTo: "/sign-in"}, nil
}

// setTheme stores the preferred colour theme.
func (d *Dashboard) setTheme(v *requestContext) (actionResult, error) {
	if t := v.formText("theme"); t == "light" || t == "dark" {
		v.setCookie("theme", t, 365*24*time.Hour)
	}
	to := v.formText("to")
	if !isLocalPath(to) {
		to = "/"
	}
	return actionResult{RedirectTo: to}, nil
}
