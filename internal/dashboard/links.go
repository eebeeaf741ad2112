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
)

// secretPath reports whether a path holds a link that lets somebody in.
func secretPath(r *http.Request) bool {
	for _, below := range []string{"/join/", "/reset/", "/confirm/", "/phone/"} {
		if strings.HasPrefix(r.URL.Path, below) {
			return true
		}
	}
	return false
}

func (d *Dashboard) forgottenForm(*visit) (page, error) {
	return page{Template: "forgotten", Title: "Choose a new password", Data: false}, nil
}

// forgotten sends a link to choose a new password. Its answer does not tell
// who is here.
func (d *Dashboard) forgotten(v *visit) (done, error) {
	if err := d.Users.MayAsk(v.ctx, v.text("email"), client(v.r)); err != nil {
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
	if err := d.Users.SendReset(ctx, who); err != nil {
		d.Log.WarnContext(ctx, "reset link not sent", "user", who.ID, "err", err)
	}
}

// claimed is an account that goes on or not when somebody proves an address.
type claimed struct{ Field, Name, Role string }

// claims lists the accounts that the holder of a link is asked about.
func (d *Dashboard) claims(v *visit, t user.Ticket) (list []claimed, err error) {
	of, err := d.Users.Claims(v.ctx, t)
	for _, m := range of {
		acc, err := d.Accounts.Get(v.ctx, m.Account)
		if err != nil {
			return nil, err
		}
		list = append(list, claimed{"keep-" + m.Account.String(), called(acc), string(m.Role)})
	}
	return list, err
}

// called is the name of an account for people.
func called(acc account.Account) string {
	if acc.Name != "" {
		return acc.Name
	}
	return acc.Email
}

// keeps reads what was said about claims.
func (v *visit) keeps() map[db.ID]bool {
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

func (d *Dashboard) resetForm(v *visit) (page, error) {
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err == nil && t.Kind != user.Reset {
		err = notFound()
	}
	if err != nil {
		return page{}, err
	}
	claims, err := d.claims(v, t)
	return page{Template: "reset", Title: "Choose a new password", Data: struct {
		Ticket user.Ticket
		Claims []claimed
	}{t, claims}}, err
}

func (d *Dashboard) reset(v *visit) (done, error) {
	v.known = false // whoever may be signed in here: it is told in the name of whose link it is
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err == nil {
		err = d.Users.SetPassword(v.ctx, v.r.PathValue("token"), v.form.Get("password"), v.keeps())
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
	told := map[db.ID]bool{who.ID: true}
	tell := func(to user.User) error {
		return d.Users.Notify(ctx, to, "A new password of "+who.Email, "Hello,\n\n"+who.Email+" has a new password for "+d.Host+
			". It was chosen from "+from.String()+" by a link such as is sent to that address.\n\nIf you do not expect that, find out who reads its mail.\n")
	}
	for _, m := range of {
		err = errors.Join(err, d.Users.Note(ctx, user.Session{Account: m.Account, User: who}, from, "Chose a new password by a link."))
		if m.Role != user.Owner {
			continue
		}
		others, failed := d.Users.Members(ctx, m.Account)
		err = errors.Join(err, failed)
		for _, o := range others {
			if o.Role == user.Owner && !told[o.ID] {
				told[o.ID] = true
				err = errors.Join(err, tell(o.User))
			}
		}
	}
	return errors.Join(err, tell(who))
}

// joining is what a link to set up or to join shows.
type joining struct {
	Ticket user.Ticket
	Name   string // of the account
	Path   string
	Email  string // that the operator is asked to confirm
	Accept bool   // who is signed in can join as they are
	Claims []claimed
}

func (d *Dashboard) joinForm(v *visit) (page, error) {
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err != nil {
		return page{}, err
	}
	j := joining{Ticket: t, Path: "/join/" + v.r.PathValue("token")}
	if t.Kind != user.Setup && t.Kind != user.Invite {
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
		j.Name = called(acc)
		j.Accept = v.known && !v.in.Halfway && v.in.User.Email == t.Email
		if !j.Accept {
			if j.Claims, err = d.claims(v, t); err != nil {
				return page{}, err
			}
		}
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
	n := user.New{Email: v.text("email"), Name: v.text("name"), Password: v.form.Get("password"), Keep: v.keeps()}
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
	if !who.Verified() { // the link may come later, too: the profile has a button for it
		if err := d.Users.SendConfirmation(context.WithoutCancel(v.ctx), who); err != nil {
			d.Log.WarnContext(v.ctx, "confirmation link not sent", "user", who.ID, "err", err)
		}
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

// confirming is what a link to confirm an address shows.
type confirming struct {
	Email, Path string
	Mine        bool // who is signed in has asked for it
}

func (d *Dashboard) confirmForm(v *visit) (page, error) {
	t, err := d.Users.Ticket(v.ctx, v.r.PathValue("token"))
	if err == nil && t.Kind != user.Confirmation {
		err = notFound()
	}
	return page{Template: "confirm", Title: "Confirm your e-mail address", Data: confirming{
		Email: t.Email, Path: v.r.URL.Path, Mine: v.known && !v.in.Halfway && v.in.User.ID == t.Person,
	}}, err
}

func (d *Dashboard) confirm(v *visit) (done, error) {
	return done{To: "/profile", Told: "Confirmed the e-mail address."}, d.Users.ConfirmAddress(v.ctx, v.in, v.r.PathValue("token"))
}

func (d *Dashboard) sendConfirmation(v *visit) (done, error) {
	if v.in.User.Verified() {
		return done{To: "/profile"}, nil
	}
	return done{To: "/profile", Told: "Sent a link to " + v.in.User.Address + "."}, d.Users.SendConfirmation(v.ctx, v.in.User)
}
