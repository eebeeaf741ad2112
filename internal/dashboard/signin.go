// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

const sessionCookie = 30 * 24 * time.Hour

// maxTries is how many passwords and codes of one network are looked at at the
// same time: each takes a hash of the password (throttle.LoginLimiter counts them).
const maxTries = 10

// trying is an act that looks at a password or a code.
func (d *Dashboard) trying(f act) act {
	return func(v *visit) (done, error) {
		release, ok := d.tries.Acquire(client(v.r))
		if !ok {
			return done{}, fault.New(fault.Limited, "too_many_tries", "Too many tries at the same time. Try again in a moment.")
		}
		defer release()
		return f(v)
	}
}

func (d *Dashboard) signInForm(v *visit) (page, error) {
	to := v.r.FormValue("to")
	if !ours(to) {
		to = "/"
	}
	if v.known && !v.in.Halfway {
		v.redirect(to)
		return page{}, errAnswered
	}
	any, err := d.Users.Any(v.ctx)
	return page{Template: "sign-in", Title: "Sign in", Data: struct {
		To    string
		Empty bool
	}{to, !any}}, err
}

func (d *Dashboard) signIn(v *visit) (done, error) {
	in, token, err := d.Users.SignIn(v.ctx, v.text("email"), v.form.Get("password"), client(v.r), v.r.UserAgent())
	if err != nil {
		return done{}, err
	}
	v.set("session", token, sessionCookie)
	return v.entered(in)
}

// entered goes on after a sign-in: to the second factor, or inside.
func (v *visit) entered(in user.Session) (done, error) {
	to := v.text("to")
	if !ours(to) {
		to = "/"
	}
	if in.Halfway {
		return done{To: "/sign-in/code?" + query("to", to)}, nil
	}
	return done{To: to}, nil
}

func (d *Dashboard) codeForm(v *visit) (page, error) {
	if !v.known || !v.in.Halfway {
		v.redirect(v.noCode())
		return page{}, errAnswered
	}
	return page{Template: "sign-in-code", Title: "One more step", Data: v.r.FormValue("to")}, nil
}

// noCode is where somebody goes on who is asked for no code, or no longer: to the
// page to sign in, which leads on who is in already.
func (v *visit) noCode() string { return "/sign-in?" + query("to", v.r.FormValue("to")) }

func (d *Dashboard) code(v *visit) (done, error) {
	switch {
	case !v.known:
		return done{To: v.noCode(), Told: "The time for the code is over. Sign in once more."}, nil
	case !v.in.Halfway:
		return done{To: v.noCode()}, nil
	}
	v.in.From = client(v.r)
	err := d.Users.Confirm(v.ctx, v.in, v.text("code"))
	if fault.Is(err, fault.Limited) {
		go d.warnOfCodes(context.WithoutCancel(v.ctx), v.in, client(v.r)) // the answer does not wait for the mail
	}
	if err != nil {
		return done{}, err
	}
	v.in.Halfway = false
	return v.entered(v.in)
}

// warnOfCodes tells a user, once a day, that somebody with the password gave too
// many wrong codes: by mail, and in the activity of the user's accounts.
func (d *Dashboard) warnOfCodes(ctx context.Context, in user.Session, from netip.Addr) {
	may, err := d.Users.MayWarn(ctx, in.User.ID)
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
		err = errors.Join(err, d.Users.Note(ctx, user.Session{Account: m.Account, User: who}, from, "Gave too many wrong codes of the second factor after the right password."))
	}
	failed := d.Users.Notify(ctx, who, "Wrong codes for "+who.Email, "Hello,\n\nsomebody signed in to "+d.Host+
		" as "+who.Email+" with the right password and then gave too many wrong codes, from "+from.String()+
		". They are not in.\n\nIf it was not you, choose a new password now: "+d.Base+"/forgotten\n")
	return errors.Join(err, failed)
}

func (d *Dashboard) signOut(v *visit) (done, error) {
	if v.known {
		if err := d.Users.SignOut(v.ctx, v.in.User.ID, v.in.ID); err != nil {
			return done{}, err
		}
	}
	v.set("session", "", -1)
	return done{To: "/sign-in"}, nil
}

// theme keeps which colours somebody likes.
func (d *Dashboard) theme(v *visit) (done, error) {
	if t := v.text("theme"); t == "light" || t == "dark" {
		v.set("theme", t, 365*24*time.Hour)
	}
	to := v.text("to")
	if !ours(to) {
		to = "/"
	}
	return done{To: to}, nil
}
