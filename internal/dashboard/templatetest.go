// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/template"
)

// testForm asks for the values that a test message is made with.
func (d *Dashboard) testForm(v *visit) (page, error) {
	id, err := v.id("id")
	if err != nil {
		return page{}, err
	}
	data := struct {
		Template template.Template
		Rows     []variableRow
		From     string
	}{}
	if data.Template, err = d.Templates.Get(v.ctx, v.in.Account, id); err != nil {
		return page{}, err
	}
	data.Rows = rowsOf(data.Template.Variables)[:len(data.Template.Variables)]
	if v.form != nil {
		entered := v.form["trial"]
		for i := range data.Rows {
			if i < len(entered) {
				data.Rows[i].Trial = entered[i]
			}
		}
	}
	if data.From, err = d.someSender(v.ctx, v.in.Account); err != nil {
		return page{}, err
	}
	return page{Template: "template-test", Title: "Test " + data.Template.Name, Section: "templates", Data: data}, nil
}

// someSender is an address that the account may send from; "" if there is none.
func (d *Dashboard) someSender(ctx context.Context, account db.ID) (string, error) {
	list, _, err := d.Domains.List(ctx, account, db.Page{Limit: db.MaxPage})
	for _, x := range list {
		if x.Sends {
			return "test@" + x.Name, err
		}
	}
	return "", err
}

// sendTest sends the newest version, a draft too. What is missing stays empty.
func (d *Dashboard) sendTest(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	t, err := d.Templates.Get(v.ctx, v.in.Account, id)
	if err != nil {
		return done{}, err
	}
	r, err := d.Templates.Preview(v.ctx, v.in.Account, id, t.Number, v.trials())
	if err != nil {
		return done{}, err
	}
	to := v.text("to")
	results, err := d.Outbox.Send(v.ctx, account.Principal{Account: v.in.Account}, []outbound.Send{{
		FromEmail: v.text("from_email"), To: []string{to}, Subject: "[Test] " + r.Subject, HTML: r.HTML, Text: r.Text, Class: "template", Template: id, TemplateVersion: t.Number,
	}}, outbound.Options{})
	if err != nil {
		return done{}, err
	}
	return done{To: "/messages/" + results[0].ID.String(), Told: "Sent a test of the template “" + t.Name + "” to " + to + "."}, nil
}
