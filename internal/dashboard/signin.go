// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// Send sends a mail of the service to somebody who belongs to accounts. false:
// none of them has a domain that it could come from, or all have suppressed the
// address.
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
		d.Log.WarnContext(ctx, "a link for a new password could not be sent: no account of the user has a domain to send from, or may write to the user", "user", who.ID)
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
	v.known = false // whoever may be signed in here: it is told in the name of whose link it is
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err == nil {
		err = d.Users.SetPassword(v.ctx, v.r.PathValue("token"), v.form.Get("password"))
	}
	if err != nil {
		return done{}, err
	}
	// It is set, whoever gives up waiting.
	if err := d.tellReset(context.WithoutCancel(v.ctx), t.Person, client(v.r)); err != nil {
		d.Log.ErrorContext(v.ctx, "that a password was chosen by a link could not be told", "user", t.Person, "error", err)
	}
	return done{To: "/sign-in", Told: "The new password is set. Sign in with it."}, nil
}

// tellReset tells that a password was chosen by a link: whoever can change the
// mailbox that the link went to could have done it. It stands in the activity
// of the user's accounts; the user, and the other owners of what the user owns,
// get a mail.
func (d *Dashboard) tellReset(ctx context.Context, id db.ID, from netip.Addr) error {
	who, err := d.Users.Get(ctx, id)
	if err != nil {
		return err
	}
	of, err := d.Users.Memberships(ctx, who.ID)
	if err != nil {
		return err
	}
	all := make([]db.ID, 0, len(of))
	told := map[db.ID]bool{who.ID: true}
	tell := func(accounts []db.ID, to user.User) error {
		_, err := d.Send(ctx, accounts, to.Email, "A new password of "+who.Email, "Hello "+to.Name+",\n\n"+who.Email+" has a new password for "+d.Host+
			". It was chosen from "+from.String()+" by a link such as is sent to that address.\n\nIf you do not expect that, find out who reads its mail.\n")
		return err
	}
	for _, m := range of {
		all = append(all, m.Account)
	}
	for _, m := range of {
		err = errors.Join(err, d.Users.Note(ctx, user.Session{Account: m.Account, User: who}, from, "Chose a new password by a link."))
		if m.Role != user.Owner {
			continue
		}
		others, failed := d.Users.Members(ctx, m.Account)
		err = errors.Join(err, failed)
		accounts := append(ids(m.Account), slices.DeleteFunc(slices.Clone(all), func(a db.ID) bool { return a == m.Account })...) // that of the operators has no domain
		for _, o := range others {
			if o.Role == user.Owner && !told[o.ID] {
				told[o.ID] = true
				err = errors.Join(err, tell(accounts, o.User))
			}
		}
	}
	return errors.Join(err, tell(all, who))
}

// joining is what a link to set up or to join shows.
type joining struct {
	Ticket user.Ticket
	Name   string // of the account
	Path   string
	Email  string // that the operator is asked to confirm
	Accept bool   // who is signed in can join as they are
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
	if t.Kind == user.Setup {
		j.Email = d.Postmaster
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
	if err != nil { // such as too many tries from there; the link is spent
		d.Log.WarnContext(v.ctx, "who has joined could not be signed in", "request", v.requestID(), "user", who.ID, "error", err)
		v.known = false
		return done{To: "/sign-in", Told: "You have joined. Sign in with your new password."}, nil
	}
	v.set("session", session, sessionCookie)
	return v.entered(in)
}

func (d *Dashboard) accept(v *visit) (done, error) {
	joined, err := d.Users.Accept(v.ctx, v.r.PathValue("token"), v.in.User)
	if err != nil {
		return done{}, err
	}
	if err := d.Users.LookAt(v.ctx, v.in, joined); err != nil {
		return done{}, err
	}
	v.in.Account = joined // it is told there
	return done{To: "/", Told: "Joined the account."}, nil
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
