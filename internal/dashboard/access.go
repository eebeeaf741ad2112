// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// shownAccess is what the page shows of who signs in to a mailbox: the
// customer's and the mailbox owner's.
type shownAccess struct {
	Mailbox mailbox.Mailbox
	Path    string // of the page
	Apps    []mailbox.AppPassword
	Open    []mailbox.Session // the newest hundred
	SignIns []mailbox.SignIn
	Pager   pager
}

func (d *Dashboard) accessOf(v *visit, m mailbox.Mailbox, path string) (page, error) {
	s := shownAccess{Mailbox: m, Path: path}
	var err error
	// A mailbox has no more of them than fit on a page.
	if s.Apps, _, err = d.Mailboxes.AppPasswords(v.ctx, m.Account, m.ID, db.Page{Limit: db.MaxPage}); err != nil {
		return page{}, err
	}
	if s.Open, _, err = d.Mailboxes.Sessions(v.ctx, m.Account, m.ID, db.Page{Limit: 100}); err != nil {
		return page{}, err
	}
	p := v.pageOf()
	var more bool
	if s.SignIns, more, err = d.Mailboxes.SignIns(v.ctx, m.Account, m.ID, p); err != nil {
		return page{}, err
	}
	if n := len(s.SignIns); n > 0 {
		s.Pager = pagerOf(path, p, n, more, s.SignIns[0].ID, s.SignIns[n-1].ID)
	}
	return page{Template: "access", Title: "Passwords and sign-ins", Section: "mailboxes", Data: s}, nil
}

// madeApp is an app password, which is shown once.
type madeApp struct {
	Mailbox  mailbox.Mailbox
	Path     string // of the page that lists it
	App      mailbox.AppPassword
	Password string
	Settings clientsetup.Settings
}

func (d *Dashboard) makeApp(v *visit, m mailbox.Mailbox, path string) (done, error) {
	made, password, err := d.Mailboxes.CreateAppPassword(v.ctx, m.Account, m.ID, v.text("name"), v.form["protocols"])
	return done{Told: "Made an app password of " + m.Address + " for " + made.Name + ".", Show: &page{Template: "app-password", Title: made.Name, Section: "mailboxes",
		Data: madeApp{m, path, made, password, d.Setup.For(m.Address, m.DisplayName)}}}, err
}

func (d *Dashboard) revokeApp(v *visit, m mailbox.Mailbox, path string) (done, error) {
	id, err := v.id("app")
	if err != nil {
		return done{}, err
	}
	return done{To: path, Told: "Revoked an app password of " + m.Address + "."}, d.Mailboxes.RevokeAppPassword(v.ctx, m.Account, m.ID, id)
}

func accessPath(m mailbox.Mailbox) string { return "/mailboxes/" + m.ID.String() + "/access" }

func (d *Dashboard) access(v *visit) (page, error) {
	m, err := d.box(v)
	if err != nil {
		return page{}, err
	}
	return d.accessOf(v, m, accessPath(m))
}

func (d *Dashboard) addApp(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return d.makeApp(v, m, accessPath(m))
}

func (d *Dashboard) endApp(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return d.revokeApp(v, m, accessPath(m))
}

// ownPath is the page of a mailbox's owner.
const ownPath = "/mailbox/access"

func (d *Dashboard) ownAccess(v *visit) (page, error) {
	m, err := d.owner(v)
	if err != nil {
		return page{}, err
	}
	p, err := d.accessOf(v, m, ownPath)
	p.Owner = m.Address
	return p, err
}

func (d *Dashboard) addOwnApp(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	did, err := d.makeApp(v, m, ownPath)
	did.Show.Owner = m.Address
	return did, err
}

func (d *Dashboard) endOwnApp(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	return d.revokeApp(v, m, ownPath)
}
