// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// Send sends a mail of the service to somebody who belongs to accounts. false:
// none of them has a domain that it could come from.
type Send func(ctx context.Context, accounts []db.ID, to, subject, text string) (sent bool, err error)

const sessionCookie = 30 * 24 * time.Hour

// maxTries is how many passwords and codes of one network are looked at at the
// same time: those under way are judged alike (throttle.Guesses).
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
	return done{To: to}, v.d.Users.Note(v.ctx, in, client(v.r), "Signed in.")
}

func (d *Dashboard) codeForm(v *visit) (page, error) {
	if !v.known || !v.in.Halfway {
		return page{}, errSignIn
	}
	return page{Template: "sign-in-code", Title: "One more step", Data: v.r.FormValue("to")}, nil
}

func (d *Dashboard) code(v *visit) (done, error) {
	if !v.known || !v.in.Halfway {
		return done{}, errSignIn
	}
	if err := d.Users.Confirm(v.ctx, v.in, v.text("code")); err != nil {
		return done{}, err
	}
	v.in.Halfway = false
	return v.entered(v.in)
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

func (d *Dashboard) forgottenForm(*visit) (page, error) {
	return page{Template: "forgotten", Title: "Choose a new password", Data: false}, nil
}

// forgotten sends a link to choose a new password. Its answer does not tell
// who is here.
func (d *Dashboard) forgotten(v *visit) (done, error) {
	if err := d.Users.MayAsk(v.text("email"), client(v.r)); err != nil {
		return done{}, err
	}
	who, err := d.Users.ByEmail(v.ctx, v.text("email"))
	if err == nil {
		// In the background, since how long it takes would tell.
		go d.sendReset(context.WithoutCancel(v.ctx), who)
	}
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return done{Show: &page{Template: "forgotten", Title: "Look at your mail", Data: true}}, err
}

func (d *Dashboard) sendReset(ctx context.Context, who user.User) {
	of, err := d.Users.Memberships(ctx, who.ID)
	accounts := make([]db.ID, 0, len(of))
	for _, m := range of {
		accounts = append(accounts, m.Account)
	}
	sent := false
	if err == nil {
		var token string
		if token, err = d.Users.NewReset(ctx, who); err == nil {
			sent, err = d.Send(ctx, accounts, who.Email, "Choose a new password", "Hello "+who.Name+",\n\nfollow this link to choose a new password for "+
				d.Host+". It works once, within an hour:\n\n"+d.Base+"/reset/"+token+"\n\nIf you did not ask for it, you need do nothing.\n")
		}
	}
	if err != nil {
		d.Log.ErrorContext(ctx, "a link for a new password could not be sent", "user", who.ID, "error", err)
	} else if !sent {
		d.Log.WarnContext(ctx, "a link for a new password could not be sent: no account of the user has a domain to send from", "user", who.ID)
	}
}

func (d *Dashboard) resetForm(v *visit) (page, error) {
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err == nil && t.Kind != user.Reset {
		err = notFound()
	}
	return page{Template: "reset", Title: "Choose a new password", Data: t}, err
}

func (d *Dashboard) reset(v *visit) (done, error) {
	err := d.Users.SetPassword(v.ctx, v.r.PathValue("token"), v.form.Get("password"))
	return done{To: "/sign-in", Told: "The new password is set. Sign in with it."}, err
}

// joining is what a link to set up or to join shows.
type joining struct {
	Ticket user.Ticket
	Name   string // of the account
	Path   string
	Accept bool // who is signed in can join as they are
}

func (d *Dashboard) joinForm(v *visit) (page, error) {
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err != nil {
		return page{}, err
	}
	j := joining{Ticket: t, Path: "/join/" + v.r.PathValue("token")}
	if t.Kind == user.Reset {
		return page{}, notFound()
	}
	if t.Kind == user.Invite {
		acc, err := d.Accounts.Get(v.ctx, t.Account)
		if err != nil {
			return page{}, err
		}
		if j.Name = acc.Name; j.Name == "" {
			j.Name = acc.Email
		}
		j.Accept = v.known && !v.in.Halfway && v.in.User.Email == t.Email
	}
	return page{Template: "join", Title: "Welcome", Data: j}, nil
}

// join makes the user that a link lets in. The first of the service becomes its
// operator, with an account of their own.
func (d *Dashboard) join(v *visit) (done, error) {
	token := v.r.PathValue("token")
	t, err := d.Users.Ticket(v.ctx, token)
	if err != nil {
		return done{}, err
	}
	n := user.New{Email: v.text("email"), Name: v.text("name"), Password: v.form.Get("password")}
	var more []db.ID
	if t.Kind == user.Setup {
		if err := n.Check(); err != nil {
			return done{}, err
		}
		acc, err := d.Accounts.ByEmail(v.ctx, n.Email)
		if fault.Is(err, fault.NotFound) {
			acc, err = d.Accounts.Create(v.ctx, n.Email, "")
		}
		if err != nil {
			return done{}, err
		}
		more = []db.ID{account.Operators, acc.ID}
	}
	who, err := d.Users.Redeem(v.ctx, token, n, more...)
	if err != nil {
		return done{}, err
	}
	in, session, err := d.Users.SignIn(v.ctx, who.Email, n.Password, client(v.r), v.r.UserAgent())
	if err != nil {
		return done{}, err
	}
	v.set("session", session, sessionCookie)
	return v.entered(in)
}

func (d *Dashboard) accept(v *visit) (done, error) {
	joined, err := d.Users.Accept(v.ctx, v.r.PathValue("token"), v.in.User)
	if err != nil {
		return done{}, err
	}
	return done{To: "/", Told: "Welcome to the account."}, d.Users.LookAt(v.ctx, v.in, joined)
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
