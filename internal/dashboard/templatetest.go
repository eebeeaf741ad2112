// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/template"
)

// templateTestForm shows the form with the values for a test message.
func (d *Dashboard) templateTestForm(v *requestContext) (page, error) {
	id, err := v.pathID("id")
	if err != nil {
		return page{}, err
	}
	data := struct {
		Template template.Template
		Rows     []variableRow
		From     string
	}{}
	if data.Template, err = d.Templates.Get(v.ctx, v.session.Account, id); err != nil {
		return page{}, err
	}
	data.Rows = newVariableRows(data.Template.Variables)[:len(data.Template.Variables)]
	if v.form != nil {
		entered := v.form["trial"]
		for i := range data.Rows {
			if i < len(entered) {
				data.Rows[i].Trial = entered[i]
			}
		}
	}
	if data.From, err = d.defaultSender(v.ctx, v.session.Account); err != nil {
		return page{}, err
	}
	return page{Template: "template-test", Title: "Test " + data.Template.Name, Section: "templates", Data: data}, nil
}

// defaultSender returns an address that the account may send from, or "" if there is none.
func (d *Dashboard) defaultSender(ctx context.Context, account db.ID) (string, error) {
	list, _, err := d.Domains.List(ctx, account, db.Page{Limit: db.MaxPageSize})
	for _, x := range list {
		if x.Sends {
			return "test@" + x.Name, err
		}
	}
	return "", err
}

// sendTemplateTest sends the newest version, even a draft. Missing values stay empty.
func (d *Dashboard) sendTemplateTest(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	t, err := d.Templates.Get(v.ctx, v.session.Account, id)
	if err != nil {
		return actionResult{}, err
	}
	r, err := d.Templates.Preview(v.ctx, v.session.Account, id, t.Number, v.formPreviewValues())
	if err != nil {
		return actionResult{}, err
	}
	to := v.formText("to")
	results, err := d.Outbox.Send(v.ctx, account.Principal{Account: v.session.Account}, []outbound.SendRequest{{
		FromEmail: v.formText("from_email"), To: []string{to}, Subject: "[Test] " + r.Subject, HTML: r.HTML, Text: r.Text, Class: "template", Template: id, TemplateVersion: t.Number,
	}}, outbound.SendOptions{})
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/messages/" + results[0].ID.String(), Summary: "Sent a test of the template “" + t.Name + "” to " + to + "."}, nil
}
