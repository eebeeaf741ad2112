// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/webhook"
)

// eventWords say what the kinds of event are, in the order of event.Kinds.
var eventWords = [...][3]string{
	{event.InboundEmail, "Mail arrived", "A message came in for one of your mailboxes."},
	{event.DeliveryStatus, "Delivery status", "A recipient’s message moved on: delivered, deferred, given up."},
	{event.Bounce, "Bounce", "A message came back for good or for now."},
	{event.Complaint, "Complaint", "A recipient called a message spam."},
	{event.DomainVerified, "Domain verified", "All required records of a domain were seen."},
	{event.MailboxCreated, "Mailbox made", "There is a new mailbox."},
	{event.MigrationComplete, "Migration complete", "Mail has been moved in from elsewhere."},
	{event.RateLimitWarning, "Limit is near", "80 % of a limit is used."},
}

func (d *Dashboard) webhooks(v *visit) (page, error) {
	p := v.pageOf()
	list, more, err := d.Webhooks.List(v.ctx, v.in.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []webhook.Webhook
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = pagerOf("/webhooks", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "webhooks", Title: "Webhooks", Section: "webhooks", Data: data}, nil
}

// webhookForm is what the form of a webhook shows.
type webhookForm struct {
	Hook   webhook.Webhook // zero for a new one
	About  string          // the filter, a name to a line
	Gone   bool            // of what it was about some is no longer there
	Kinds  [][3]string
	All    bool
	Wanted map[string]bool
}

func formOf(w webhook.Webhook, about string) webhookForm {
	f := webhookForm{Hook: w, About: about, Kinds: eventWords[:], Wanted: map[string]bool{}}
	for _, k := range w.Kinds {
		f.Wanted[k] = true
	}
	f.All = f.Wanted[webhook.All]
	return f
}

func (d *Dashboard) newWebhook(v *visit) (page, error) {
	return page{Template: "webhook-form", Title: "New webhook", Section: "webhooks", Data: formOf(webhook.Webhook{Content: v.in.Mail}, "")}, nil
}

func (d *Dashboard) editWebhook(v *visit) (page, error) {
	w, err := d.hook(v)
	if err != nil {
		return page{}, err
	}
	about, err := d.filterNames(v, w)
	f := formOf(w, strings.Join(about, "\n"))
	f.Gone = len(about) < len(w.Domains)+len(w.Mailboxes)
	return page{Template: "webhook-form", Title: "Change a webhook", Section: "webhooks", Data: f}, err
}

// hook finds the webhook that the path names.
func (d *Dashboard) hook(v *visit) (webhook.Webhook, error) {
	id, err := v.id("id")
	if err != nil {
		return webhook.Webhook{}, err
	}
	return d.Webhooks.Get(v.ctx, v.in.Account, id)
}

// filterNames says what a webhook is about, by names: none is everything. What
// is no longer there is left out.
func (d *Dashboard) filterNames(v *visit, w webhook.Webhook) (names []string, err error) {
	for _, id := range w.Domains {
		x, err := d.Domains.Get(v.ctx, v.in.Account, id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names = append(names, x.DisplayName)
	}
	for _, id := range w.Mailboxes {
		m, err := d.Mailboxes.Get(v.ctx, v.in.Account, id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names = append(names, m.Address)
	}
	return names, nil
}

// filter reads what a webhook shall be about: domains and mailboxes, by name.
func (d *Dashboard) filter(v *visit) (domains, mailboxes []db.ID, err error) {
	lines := strings.Fields(strings.ReplaceAll(v.text("about"), ",", " "))
	domains, mailboxes = []db.ID{}, []db.ID{}
	var bad fault.Fields
	if len(lines) > 2*webhook.MaxFilter { // so many domains, and so many mailboxes
		bad.Add("about", "too_many", "Give at most %d domains and %d mailboxes.", webhook.MaxFilter, webhook.MaxFilter)
		return nil, nil, bad.Err()
	}
	for i, line := range lines {
		id, err := d.Domains.Named(v.ctx, v.in.Account, line)
		if err == nil {
			domains = append(domains, id)
			continue
		}
		if !fault.Is(err, fault.NotFound) {
			return nil, nil, err
		}
		found, err := d.Mailboxes.ReadTargets(v.ctx, v.in.Account, []string{line})
		if fault.Is(err, fault.Invalid) || err == nil && found[0].Mailbox == 0 {
			bad.Add("about", "not_found", "Line %d is no domain or mailbox of yours.", i+1)
			break
		}
		if err != nil {
			return nil, nil, err
		}
		mailboxes = append(mailboxes, found[0].Mailbox)
	}
	return domains, mailboxes, bad.Err()
}

// aboutFault tells faults of the filter by the name of the form's field.
func aboutFault(err error) error {
	return renamed(renamed(err, "domains", "about"), "mailboxes", "about")
}

// shownSecret is a webhook with its secret, which is shown once.
type shownSecret struct {
	Hook   webhook.Webhook
	Secret string
	New    bool
	Until  time.Time // when a former secret signs no more; zero for none
}

func showSecret(s shownSecret) *page {
	return &page{Template: "webhook-secret", Title: "The secret", Section: "webhooks", Data: s}
}

func (d *Dashboard) addWebhook(v *visit) (done, error) {
	domains, mailboxes, err := d.filter(v)
	if err != nil {
		return done{}, err
	}
	w, secret, err := d.Webhooks.Create(v.ctx, v.in.Account, webhook.NewHook{
		URL: v.text("url"), Kinds: v.form["events"], Description: v.text("description"), Domains: domains, Mailboxes: mailboxes, Content: v.in.Mail && v.text("content") != ""})
	if err != nil {
		return done{}, aboutFault(err)
	}
	return done{Told: "Made the webhook " + webhook.Site(w.URL) + ".", Show: showSecret(shownSecret{Hook: w, Secret: secret, New: true})}, nil
}

func (d *Dashboard) changeWebhook(v *visit) (done, error) {
	w, err := d.hook(v)
	if err != nil {
		return done{}, err
	}
	domains, mailboxes, err := d.filter(v)
	if err != nil {
		return done{}, err
	}
	url, description, kinds := v.text("url"), v.text("description"), v.form["events"]
	content := v.text("content") != ""
	w, err = d.Webhooks.Update(v.ctx, v.in.Account, w.ID, webhook.Change{URL: &url, Description: &description, Kinds: &kinds, Domains: &domains, Mailboxes: &mailboxes,
		Content: &content, NoMail: !v.in.Mail})
	return done{To: "/webhooks/" + w.ID.String(), Told: "Changed the webhook " + webhook.Site(w.URL) + "."}, aboutFault(err)
}

func (d *Dashboard) enableWebhook(v *visit) (done, error) {
	return d.setWebhookStatus(v, webhook.Enabled, "Enabled")
}

func (d *Dashboard) disableWebhook(v *visit) (done, error) {
	return d.setWebhookStatus(v, webhook.Disabled, "Disabled")
}

func (d *Dashboard) setWebhookStatus(v *visit, status, did string) (done, error) {
	w, err := d.hook(v)
	if err != nil {
		return done{}, err
	}
	_, err = d.Webhooks.Update(v.ctx, v.in.Account, w.ID, webhook.Change{Status: &status})
	return done{To: "/webhooks/" + w.ID.String(), Told: did + " the webhook " + webhook.Site(w.URL) + "."}, err
}

func (d *Dashboard) rotateWebhook(v *visit) (done, error) {
	w, err := d.hook(v)
	if err != nil {
		return done{}, err
	}
	overlap := webhook.Overlap
	if v.text("at_once") != "" {
		overlap = 0
	}
	w, secret, err := d.Webhooks.Rotate(v.ctx, v.in.Account, w.ID, overlap)
	return done{Told: "Made a new secret of the webhook " + webhook.Site(w.URL) + ".", Show: showSecret(shownSecret{Hook: w, Secret: secret, Until: w.OldUntil})}, err
}

func (d *Dashboard) deleteWebhook(v *visit) (done, error) {
	w, err := d.hook(v)
	if err != nil {
		return done{}, err
	}
	return done{To: "/webhooks", Told: "Deleted the webhook " + webhook.Site(w.URL) + "."}, d.Webhooks.Delete(v.ctx, v.in.Account, w.ID)
}
