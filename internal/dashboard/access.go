// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// mailboxAccessPage is the data of the page with a mailbox's app passwords and sign-ins, for the
// customer and for the mailbox owner.
type mailboxAccessPage struct {
	Mailbox mailbox.Mailbox
	Path    string // path of the page
	Apps    []mailbox.AppPassword
	Open    []mailbox.Session // the newest 100
	SignIns []mailbox.SignIn
	Pager   pager
}

func (d *Dashboard) loadMailboxAccessPage(v *requestContext, m mailbox.Mailbox, path string) (page, error) {
	s := mailboxAccessPage{Mailbox: m, Path: path}
	var err error
	// All app passwords of a mailbox fit on one page.
	if s.Apps, _, err = d.Mailboxes.AppPasswords(v.ctx, m.Account, m.ID, db.Page{Limit: db.MaxPageSize}); err != nil {
		return page{}, err
	}
	if s.Open, _, err = d.Mailboxes.Sessions(v.ctx, m.Account, m.ID, db.Page{Limit: 100}); err != nil {
		return page{}, err
	}
	p := v.listPage()
	var more bool
	if s.SignIns, more, err = d.Mailboxes.SignIns(v.ctx, m.Account, m.ID, p); err != nil {
		return page{}, err
	}
	if n := len(s.SignIns); n > 0 {
		s.Pager = newPager(path, p, n, more, s.SignIns[0].ID, s.SignIns[n-1].ID)
	}
	return page{Template: "access", Title: "Passwords and sign-ins", Section: "mailboxes", Data: s}, nil
}

// appPasswordPage shows a new app password once.
type appPasswordPage struct {
	Mailbox  mailbox.Mailbox
	Path     string // path of the page that lists it
	App      mailbox.AppPassword
	Password string
	Settings clientsetup.Settings
}

func (d *Dashboard) createAppPasswordFor(v *requestContext, m mailbox.Mailbox, path string) (actionResult, error) {
	made, password, err := d.Mailboxes.CreateAppPassword(v.ctx, m.Account, m.ID, v.formText("name"), v.form["protocols"])
	return actionResult{Summary: "Made an app password of " + m.Address + " for " + made.Name + ".", Page: &page{Template: "app-password", Title: made.Name, Section: "mailboxes",
		Data: appPasswordPage{m, path, made, password, d.ClientSetup.Settings(m.Address, m.DisplayName)}}}, err
}

func (d *Dashboard) revokeAppPasswordOf(v *requestContext, m mailbox.Mailbox, path string) (actionResult, error) {
	id, err := v.pathID("app")
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: path, Summary: "Revoked an app password of " + m.Address + "."}, d.Mailboxes.RevokeAppPassword(v.ctx, m.Account, m.ID, id)
}

func mailboxAccessPath(m mailbox.Mailbox) string { return "/mailboxes/" + m.ID.String() + "/access" }

func (d *Dashboard) mailboxAccess(v *requestContext) (page, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return page{}, err
	}
	return d.loadMailboxAccessPage(v, m, mailboxAccessPath(m))
}

func (d *Dashboard) createAppPassword(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.createAppPasswordFor(v, m, mailboxAccessPath(m))
}

func (d *Dashboard) revokeAppPassword(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.revokeAppPasswordOf(v, m, mailboxAccessPath(m))
}

// ownerAccessPath is the path of the mailbox owner's page.
const ownerAccessPath = "/mailbox/access"

func (d *Dashboard) ownerAccess(v *requestContext) (page, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return page{}, err
	}
	p, err := d.loadMailboxAccessPage(v, m, ownerAccessPath)
	p.Owner = m.Address
	return p, err
}

func (d *Dashboard) createOwnerAppPassword(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	did, err := d.createAppPasswordFor(v, m, ownerAccessPath)
	did.Page.Owner = m.Address
	return did, err
}

func (d *Dashboard) revokeOwnerAppPassword(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.revokeAppPasswordOf(v, m, ownerAccessPath)
}
