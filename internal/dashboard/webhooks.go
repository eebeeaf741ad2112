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

// eventKinds describes the event types, in the order of event.Kinds.
var eventKinds = [...][3]string{
	{event.InboundEmail, "Mail arrived", "A message came in for one of your mailboxes."},
	{event.DeliveryStatus, "Delivery status", "A recipient’s message moved on: delivered, deferred, given up."},
	{event.Bounce, "Bounce", "A message came back for good or for now."},
	{event.Complaint, "Complaint", "A recipient called a message spam."},
	{event.Unsubscribe, "Unsubscribe", "A recipient unsubscribed by the link or by mail."},
	{event.DomainVerified, "Domain verified", "All required records of a domain were seen."},
	{event.MailboxCreated, "Mailbox made", "There is a new mailbox."},
	{event.MigrationComplete, "Migration complete", "Mail has been moved in from elsewhere."},
	{event.RateLimitWarning, "Limit is near", "80 % of a limit is used."},
}

func (d *Dashboard) webhooks(v *requestContext) (page, error) {
	p := v.listPage()
	list, more, err := d.Webhooks.List(v.ctx, v.session.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []webhook.Webhook
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = newPager("/webhooks", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "webhooks", Title: "Webhooks", Section: "webhooks", Data: data}, nil
}

// webhookForm is the data of a webhook's form.
type webhookForm struct {
	Hook   webhook.Webhook // zero for a new webhook
	About  string          // the filter, one name per line
	Gone   bool            // whether some domains or mailboxes of the filter were deleted
	Kinds  [][3]string
	All    bool
	Wanted map[string]bool
}

func newWebhookForm(w webhook.Webhook, about string) webhookForm {
	f := webhookForm{Hook: w, About: about, Kinds: eventKinds[:], Wanted: map[string]bool{}}
	for _, k := range w.Kinds {
		f.Wanted[k] = true
	}
	f.All = f.Wanted[webhook.AllKinds]
	return f
}

func (d *Dashboard) newWebhook(v *requestContext) (page, error) {
	return page{Template: "webhook-form", Title: "New webhook", Section: "webhooks", Data: newWebhookForm(webhook.Webhook{Content: v.session.ReadsMail}, "")}, nil
}

func (d *Dashboard) editWebhook(v *requestContext) (page, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return page{}, err
	}
	about, err := d.webhookFilterNames(v, w)
	f := newWebhookForm(w, strings.Join(about, "\n"))
	f.Gone = len(about) < len(w.Domains)+len(w.Mailboxes)
	return page{Template: "webhook-form", Title: "Change a webhook", Section: "webhooks", Data: f}, err
}

// findWebhook returns the webhook that the path names.
func (d *Dashboard) findWebhook(v *requestContext) (webhook.Webhook, error) {
	id, err := v.pathID("id")
	if err != nil {
		return webhook.Webhook{}, err
	}
	return d.Webhooks.Get(v.ctx, v.session.Account, id)
}

// webhookFilterNames returns the names of a webhook's domains and mailboxes; no names mean no
// filter. It leaves out deleted ones.
func (d *Dashboard) webhookFilterNames(v *requestContext, w webhook.Webhook) (names []string, err error) {
	for _, id := range w.Domains {
		x, err := d.Domains.Get(v.ctx, v.session.Account, id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names = append(names, x.DisplayName)
	}
	for _, id := range w.Mailboxes {
		m, err := d.Mailboxes.Get(v.ctx, v.session.Account, id)
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

// readWebhookFilter reads the domains and mailboxes of a webhook, by name.
func (d *Dashboard) readWebhookFilter(v *requestContext) (domains, mailboxes []db.ID, err error) {
	lines := strings.Fields(strings.ReplaceAll(v.formText("about"), ",", " "))
	domains, mailboxes = []db.ID{}, []db.ID{}
	var bad fault.FieldErrors
	if len(lines) > 2*webhook.MaxFilterIDs { // the limit for domains plus that for mailboxes
		bad.Add("about", "too_many", "Give at most %d domains and %d mailboxes.", webhook.MaxFilterIDs, webhook.MaxFilterIDs)
		return nil, nil, bad.Err()
	}
	for i, line := range lines {
		id, err := d.Domains.IDByName(v.ctx, v.session.Account, line)
		if err == nil {
			domains = append(domains, id)
			continue
		}
		if !fault.Is(err, fault.NotFound) {
			return nil, nil, err
		}
		found, err := d.Mailboxes.ParseTargets(v.ctx, v.session.Account, []string{line})
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

// renameFilterFields changes field errors of the filter to the form's name.
func renameFilterFields(err error) error {
	return renameField(renameField(err, "domains", "about"), "mailboxes", "about")
}

// webhookSecretPage shows a webhook's secret once.
type webhookSecretPage struct {
	Hook   webhook.Webhook
	Secret string
	New    bool
	Until  time.Time // when the former secret stops signing; zero for none
}

func secretPage(s webhookSecretPage) *page {
	return &page{Template: "webhook-secret", Title: "The secret", Section: "webhooks", Data: s}
}

func (d *Dashboard) addWebhook(v *requestContext) (actionResult, error) {
	domains, mailboxes, err := d.readWebhookFilter(v)
	if err != nil {
		return actionResult{}, err
	}
	w, secret, err := d.Webhooks.Create(v.ctx, v.session.Account, webhook.Spec{
		URL: v.formText("url"), Kinds: v.form["events"], Description: v.formText("description"), Domains: domains, Mailboxes: mailboxes, Content: v.session.ReadsMail && v.formText("content") != ""})
	if err != nil {
		return actionResult{}, renameFilterFields(err)
	}
	return actionResult{Summary: "Made the webhook " + webhook.Origin(w.URL) + ".", Page: secretPage(webhookSecretPage{Hook: w, Secret: secret, New: true})}, nil
}

func (d *Dashboard) changeWebhook(v *requestContext) (actionResult, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return actionResult{}, err
	}
	domains, mailboxes, err := d.readWebhookFilter(v)
	if err != nil {
		return actionResult{}, err
	}
	url, description, kinds := v.formText("url"), v.formText("description"), v.form["events"]
	content := v.formText("content") != ""
	w, err = d.Webhooks.Update(v.ctx, v.session.Account, w.ID, webhook.Change{URL: &url, Description: &description, Kinds: &kinds, Domains: &domains, Mailboxes: &mailboxes,
		Content: &content, NoMailRead: !v.session.ReadsMail})
	return actionResult{RedirectTo: "/webhooks/" + w.ID.String(), Summary: "Changed the webhook " + webhook.Origin(w.URL) + "."}, renameFilterFields(err)
}

func (d *Dashboard) enableWebhook(v *requestContext) (actionResult, error) {
	return d.setWebhookStatus(v, webhook.StatusEnabled, "Enabled")
}

func (d *Dashboard) disableWebhook(v *requestContext) (actionResult, error) {
	return d.setWebhookStatus(v, webhook.StatusDisabled, "Disabled")
}

func (d *Dashboard) setWebhookStatus(v *requestContext, status, did string) (actionResult, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return actionResult{}, err
	}
	_, err = d.Webhooks.Update(v.ctx, v.session.Account, w.ID, webhook.Change{Status: &status})
	return actionResult{RedirectTo: "/webhooks/" + w.ID.String(), Summary: did + " the webhook " + webhook.Origin(w.URL) + "."}, err
}

func (d *Dashboard) rotateWebhookSecret(v *requestContext) (actionResult, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return actionResult{}, err
	}
	overlap := webhook.SecretOverlap
	if v.formText("at_once") != "" {
		overlap = 0
	}
	w, secret, err := d.Webhooks.RotateSecret(v.ctx, v.session.Account, w.ID, overlap)
	return actionResult{Summary: "Made a new secret of the webhook " + webhook.Origin(w.URL) + ".", Page: secretPage(webhookSecretPage{Hook: w, Secret: secret, Until: w.OldSecretUntil})}, err
}

func (d *Dashboard) deleteWebhook(v *requestContext) (actionResult, error) {
	w, err := d.findWebhook(v)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/webhooks", Summary: "Deleted the webhook " + webhook.Origin(w.URL) + "."}, d.Webhooks.Delete(v.ctx, v.session.Account, w.ID)
}
