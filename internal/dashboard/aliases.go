// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// aliasView is an alias for the pages.
type aliasView struct{ mailbox.Alias }

// CatchAll reports whether the alias receives all mail to unknown addresses of its domain.
func (a aliasView) CatchAll() bool { return strings.HasPrefix(a.Address, mailbox.CatchAll+"@") }

// Lines returns the targets, one per line.
func (a aliasView) Lines() string {
	lines := make([]string, len(a.Targets))
	for i, t := range a.Targets {
		lines[i] = t.Address
	}
	return strings.Join(lines, "\n")
}

func (d *Dashboard) aliases(v *requestContext) (page, error) {
	p := v.listPage()
	list, more, err := d.Mailboxes.Aliases(v.ctx, v.session.Account, 0, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []aliasView
		Pager pager
		Ready bool // whether a domain exists for aliases
	}{}
	for _, a := range list {
		data.List = append(data.List, aliasView{a})
	}
	if n := len(list); n > 0 {
		data.Pager = newPager("/aliases", p, n, more, list[0].ID, list[n-1].ID)
	}
	all, err := d.domainsForChoice(v)
	for _, x := range all {
		data.Ready = data.Ready || x.OwnershipStatus == domain.StatusVerified
	}
	return page{Template: "aliases", Title: "Aliases", Section: "mailboxes", Data: data}, err
}

// aliasTargets reads the targets of an alias from the form.
func (v *requestContext) aliasTargets() []string {
	return strings.FieldsFunc(v.formText("targets"), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

func (d *Dashboard) addAlias(v *requestContext) (actionResult, error) {
	made, err := d.Mailboxes.CreateAlias(v.ctx, v.session.Account, v.formText("address"), v.aliasTargets())
	return actionResult{RedirectTo: "/aliases", Summary: "Made the alias " + made.Address + "."}, err
}

func (d *Dashboard) findAlias(v *requestContext) (mailbox.Alias, error) {
	id, err := v.pathID("id")
	if err != nil {
		return mailbox.Alias{}, err
	}
	return d.Mailboxes.GetAlias(v.ctx, v.session.Account, id)
}

func (d *Dashboard) alias(v *requestContext) (page, error) {
	a, err := d.findAlias(v)
	if err != nil {
		return page{}, err
	}
	return page{Template: "alias", Title: a.Address, Section: "mailboxes", Data: aliasView{a}}, nil
}

func (d *Dashboard) changeAlias(v *requestContext) (actionResult, error) {
	a, err := d.findAlias(v)
	if err != nil {
		return actionResult{}, err
	}
	_, err = d.Mailboxes.UpdateAlias(v.ctx, v.session.Account, a.ID, v.aliasTargets())
	return actionResult{RedirectTo: aliasPath(a.ID), Summary: "Changed where " + a.Address + " leads to."}, err
}

func aliasPath(id db.ID) string { return "/aliases/" + id.String() }

func (d *Dashboard) deleteAlias(v *requestContext) (actionResult, error) {
	a, err := d.findAlias(v)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/aliases", Summary: "Deleted the alias " + a.Address + "."}, d.Mailboxes.DeleteAlias(v.ctx, v.session.Account, a.ID)
}
