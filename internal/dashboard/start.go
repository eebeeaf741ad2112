// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/stat"
)

// setupStep is a step of the setup checklist.
type setupStep struct {
	Name, Text, To string
	Done           bool
}

type statItem struct {
	Name string
	N    int64
	Tone string
}

const chartDays = 30

func (d *Dashboard) startPage(v *requestContext) (page, error) {
	if v.isOperator() {
		v.redirect("/operator")
		return page{}, errResponded
	}
	steps, err := d.setupSteps(v)
	if err != nil {
		return page{}, err
	}
	ready := true
	for _, s := range steps {
		ready = ready && s.Done
	}
	now := d.Now()
	_, today, err := d.Stats.Read(v.ctx, stat.Query{Account: v.session.Account, Interval: stat.Hour, From: now.Add(-24 * time.Hour), To: now})
	if err != nil {
		return page{}, err
	}
	days, _, err := d.Stats.Read(v.ctx, stat.Query{Account: v.session.Account, Interval: stat.Day, From: now.AddDate(0, 0, 1-chartDays), To: now})
	if err != nil {
		return page{}, err
	}
	worry := func(n int64) string {
		if n > 0 {
			return "bad"
		}
		return ""
	}
	return page{Template: "start", Title: "Start", Section: "start", Data: struct {
		Ready bool
		Steps []setupStep
		Today []statItem
		Days  []stat.Period
	}{ready, steps, []statItem{
		{"Sent", today.Accepted, ""}, {"Delivered", today.Delivered, ""}, {"Deferred", today.Deferred, ""}, {"Bounced", today.Bounced, worry(today.Bounced)},
		{"Complaints", today.Complained, worry(today.Complained)}, {"Received", today.Inbound, ""},
	}, days}}, nil
}

// setupSteps returns the setup checklist of an account.
func (d *Dashboard) setupSteps(v *requestContext) ([]setupStep, error) {
	one := db.Page{Limit: 1}
	domains, _, err := d.Domains.List(v.ctx, v.session.Account, db.Page{Limit: db.MaxPageSize})
	if err != nil {
		return nil, err
	}
	verified, toDomain := false, "/domains"
	for _, x := range domains {
		verified = verified || x.Sends && x.Receives
		if !x.Sends || !x.Receives {
			toDomain = "/domains/" + x.ID.String()
		}
	}
	boxes, _, err := d.Mailboxes.List(v.ctx, v.session.Account, mailbox.Filter{}, one)
	if err != nil {
		return nil, err
	}
	_, sent, err := d.Stats.Read(v.ctx, stat.Query{Account: v.session.Account, Interval: stat.Day, From: d.Now().AddDate(0, 0, -60), To: d.Now()})
	if err != nil {
		return nil, err
	}
	hooks, _, err := d.Webhooks.List(v.ctx, v.session.Account, one)
	if err != nil {
		return nil, err
	}
	return []setupStep{
		{"Add a domain", "One that you own, such as example.com.", "/domains", len(domains) > 0},
		{"Publish its DNS records", "They let the world see that mail of the domain belongs here. We look for them by ourselves.", toDomain, verified},
		{"Make a mailbox", "For a person, with any mail client.", "/mailboxes", len(boxes) > 0},
		{"Send a first message", "From a mail client, or from an application with an API key.", "/keys", sent.Accepted > 0},
		{"Have events told to your application", "A webhook is called for each delivery, bounce and message that arrives.", "/webhooks", len(hooks) > 0},
	}, nil
}
