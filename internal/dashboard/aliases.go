// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// shownAlias is an alias as the pages have it.
type shownAlias struct{ mailbox.Alias }

// CatchAll reports whether it takes what nothing else of its domain does.
func (a shownAlias) CatchAll() bool { return strings.HasPrefix(a.Address, mailbox.CatchAll+"@") }

// Lines are what it leads to, one to a line.
func (a shownAlias) Lines() string {
	lines := make([]string, len(a.Targets))
	for i, t := range a.Targets {
		lines[i] = t.Address
	}
	return strings.Join(lines, "\n")
}

func (d *Dashboard) aliases(v *visit) (page, error) {
	p := v.pageOf()
	list, more, err := d.Mailboxes.Aliases(v.ctx, v.in.Account, 0, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []shownAlias
		Pager pager
		Ready bool // there is a domain that aliases can be made on
	}{}
	for _, a := range list {
		data.List = append(data.List, shownAlias{a})
	}
	if n := len(list); n > 0 {
		data.Pager = pagerOf("/aliases", p, n, more, list[0].ID, list[n-1].ID)
	}
	all, err := d.allDomains(v)
	for _, x := range all {
		data.Ready = data.Ready || x.OwnershipStatus == domain.Verified
	}
	return page{Template: "aliases", Title: "Aliases", Section: "mailboxes", Data: data}, err
}

// targets reads where the mail of an alias shall go.
func (v *visit) targets() []string {
	return strings.FieldsFunc(v.text("targets"), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

func (d *Dashboard) addAlias(v *visit) (done, error) {
	made, err := d.Mailboxes.CreateAlias(v.ctx, v.in.Account, v.text("address"), v.targets())
	return done{To: "/aliases", Told: "Made the alias " + made.Address + "."}, err
}

func (d *Dashboard) aliasOf(v *visit) (mailbox.Alias, error) {
	id, err := v.id("id")
	if err != nil {
		return mailbox.Alias{}, err
	}
	return d.Mailboxes.GetAlias(v.ctx, v.in.Account, id)
}

func (d *Dashboard) alias(v *visit) (page, error) {
	a, err := d.aliasOf(v)
	if err != nil {
		return page{}, err
	}
	return page{Template: "alias", Title: a.Address, Section: "mailboxes", Data: shownAlias{a}}, nil
}

func (d *Dashboard) changeAlias(v *visit) (done, error) {
	a, err := d.aliasOf(v)
	if err != nil {
		return done{}, err
	}
	_, err = d.Mailboxes.UpdateAlias(v.ctx, v.in.Account, a.ID, v.targets())
	return done{To: aliasPath(a.ID), Told: "Changed where " + a.Address + " leads to."}, err
}

func aliasPath(id db.ID) string { return "/aliases/" + id.String() }

func (d *Dashboard) deleteAlias(v *visit) (done, error) {
	a, err := d.aliasOf(v)
	if err != nil {
		return done{}, err
	}
	return done{To: "/aliases", Told: "Deleted the alias " + a.Address + "."}, d.Mailboxes.DeleteAlias(v.ctx, v.in.Account, a.ID)
}
