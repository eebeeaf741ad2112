// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/quota"
)

// rejectOperators returns a not-found fault for the operator account, whose keys are created only
// on the command line.
func rejectOperators(v *requestContext) error {
	if v.isOperator() {
		return notFound()
	}
	return nil
}

func (d *Dashboard) keys(v *requestContext) (page, error) {
	if err := rejectOperators(v); err != nil {
		return page{}, err
	}
	p := v.listPage()
	list, more, err := d.Accounts.Keys(v.ctx, v.session.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []account.Key
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = newPager("/keys", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "keys", Title: "API keys", Section: "keys", Data: data}, nil
}

// scopeGroup has the scopes of one resource.
type scopeGroup struct {
	Name, Text string
	Choices    [][2]string // scope and what it allows
}

// scopeNames describes the resources of the scopes.
var scopeNames = [...][3]string{
	{"outbound", "Sending", "Mail from the account's domains."},
	{"domains", "Domains", "Their DNS records and keys."},
	{"mailboxes", "Mailboxes", "Who has one, passwords, client setup."},
	{"mail", "Mail", "What lies in the mailboxes, and what events say of it."},
	{"messages", "Sent messages", "What became of them; cancelling, trying again."},
	{"templates", "Templates", "For messages that look alike."},
	{"events", "Events", "What happened, as a list and a stream."},
	{"webhooks", "Webhooks", "Where events are sent, and their deliveries."},
	{"suppressions", "Suppressions", "Addresses that are not written to."},
	{"migrations", "Migrations", "Moving mail in from elsewhere."},
	{"stats", "Statistics", "Sums by hour and day."},
	{"limits", "Limits", "What is allowed and used."},
	{"activity", "Activity", "Who changed what, and who read mail."},
	{"api_keys", "API keys", "No key gives more than it has."},
	{"sandbox", "Sandbox", "Simulated mail, and the outbox."},
}

// scopeGroups returns all scopes by resource, except for the scope for everything.
func scopeGroups() (groups []scopeGroup) {
	verbs := map[string]string{"read": "Read", "write": "Read and change", "send": "Send"}
	for _, n := range scopeNames {
		g := scopeGroup{Name: n[1], Text: n[2]}
		for _, s := range account.Scopes() {
			if verb, ok := strings.CutPrefix(s, n[0]+"."); ok {
				g.Choices = append(g.Choices, [2]string{s, verbs[verb]})
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// keyLimitFields are the form fields for a key's own limits.
var keyLimitFields = [][2]string{
	{"requests_per_second", "Requests a second"}, {"burst", "Requests at once"}, {"sends_per_hour", "Messages an hour"},
	{"sends_per_day", "Messages a day"}, {"recipients_per_day", "Recipients a day"},
}

func (d *Dashboard) newKey(v *requestContext) (page, error) {
	if err := rejectOperators(v); err != nil {
		return page{}, err
	}
	all, err := d.domainsForChoice(v)
	if err != nil {
		return page{}, err
	}
	choice := [][2]string{{"", "All domains"}}
	for _, x := range all {
		choice = append(choice, [2]string{x.Name, x.DisplayName})
	}
	return page{Template: "key-new", Title: "New API key", Section: "keys", Data: struct {
		Domains [][2]string
		Input   string
		Groups  []scopeGroup
		Limits  [][2]string
	}{choice, domainInputType(all), scopeGroups(), keyLimitFields}}, nil
}

// keyCreatedPage shows a new key's token once.
type keyCreatedPage struct {
	Key         account.Key
	Token, Curl string
}

func (d *Dashboard) addKey(v *requestContext) (actionResult, error) {
	if err := rejectOperators(v); err != nil {
		return actionResult{}, err
	}
	n, err := v.readKeyForm()
	if err != nil {
		return actionResult{}, err
	}
	set, err := d.Limits.AccountLimits(v.ctx, v.session.Account)
	if err != nil {
		return actionResult{}, err
	}
	if err := quota.CheckKeyRates(quota.Rates(n.Limits), set.Rates); err != nil {
		return actionResult{}, renameLimitFields(err)
	}
	k, token, err := d.Accounts.CreateKey(v.ctx, v.session.Account, n)
	if err != nil {
		return actionResult{}, renameLimitFields(err)
	}
	from, err := d.sampleSender(v, k)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{Summary: "Made the API key " + k.Name + ".", Page: &page{Template: "key-made", Title: k.Name, Section: "keys",
		Data: keyCreatedPage{k, token, d.sampleCurl(k, token, from)}}}, nil
}

// readKeyForm reads the form. It is an error to choose no scope: that doesn't mean all scopes.
func (v *requestContext) readKeyForm() (account.KeyParams, error) {
	var bad fault.FieldErrors
	n := account.KeyParams{Name: v.formText("name"), Scopes: v.form["scopes"], Domain: v.formText("domain"), Networks: strings.Fields(strings.ReplaceAll(v.formText("allowed_ips"), ",", " "))}
	if len(n.Scopes) == 0 {
		bad.Add("scopes", "required", "Choose what the key may do.")
	}
	if text := v.formText("expires_at"); text != "" {
		day, err := time.Parse(time.DateOnly, text)
		if err != nil {
			bad.Add("expires_at", "invalid", "Give a date such as 2030-12-31.")
		}
		n.ExpiresAt = day.AddDate(0, 0, 1)
	}
	for i, into := range []*int64{&n.Limits.RequestsPerSecond, &n.Limits.Burst, &n.Limits.SendsPerHour, &n.Limits.SendsPerDay, &n.Limits.RecipientsPerDay} {
		name := keyLimitFields[i][0]
		if text := v.formText(name); text != "" {
			var err error
			if *into, err = strconv.ParseInt(text, 10, 64); err != nil || *into < 1 {
				bad.Add(name, "invalid", "Give a whole number of 1 or more, or nothing.")
			}
		}
	}
	return n, bad.Err()
}

// renameLimitFields changes field errors of limits to the form's names.
func renameLimitFields(err error) error {
	for _, l := range keyLimitFields {
		err = renameField(err, "limits."+l[0], l[0])
	}
	return err
}

// sampleSender returns a sender address that the key may use, for the example.
func (d *Dashboard) sampleSender(v *requestContext, k account.Key) (string, error) {
	if k.Domain != "" {
		return "you@" + k.Domain, nil
	}
	all, err := d.domainsForChoice(v)
	for _, x := range all {
		if x.Sends {
			return "you@" + x.Name, err
		}
	}
	return "you@example.com", err
}

// sampleCurl returns a first curl call that the key's scopes allow.
func (d *Dashboard) sampleCurl(k account.Key, token, from string) string {
	head := "curl " + d.BaseURL + "/api/v1"
	auth := " \\\n  -H 'Authorization: Bearer " + token + "'"
	can := account.Principal{Account: k.Account, Scopes: k.Scopes}.HasScope
	if can("outbound.send") {
		return head + "/outbound/send" + auth + " \\\n  -H 'Content-Type: application/json' \\\n  -d '" +
			`{"from_email": "` + from + `", "to": ["bob@example.org"], "subject": "Hello", "text": "It works."}'`
	}
	for _, r := range [][2]string{
		{"domains", "/domains"}, {"mailboxes", "/mailboxes"}, {"messages", "/outbound/messages"}, {"events", "/events"}, {"webhooks", "/webhooks"},
		{"templates", "/templates"}, {"suppressions", "/suppressions"}, {"stats", "/stats"}, {"limits", "/limits"}, {"api_keys", "/api-keys"}, {"migrations", "/migrations"},
	} {
		if can(r[0] + ".read") {
			return head + r[1] + auth
		}
	}
	return head + "/mailboxes" + auth
}

func (d *Dashboard) deleteKey(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err == nil {
		err = rejectOperators(v)
	}
	if err != nil {
		return actionResult{}, err
	}
	// Only the list returns a key: it starts with this one.
	found, _, err := d.Accounts.Keys(v.ctx, v.session.Account, db.Page{After: id + 1, Limit: 1})
	if err != nil {
		return actionResult{}, err
	}
	if len(found) == 0 || found[0].ID != id {
		return actionResult{}, notFound()
	}
	return actionResult{RedirectTo: "/keys", Summary: "Deleted the API key " + found[0].Name + "."}, d.Accounts.DeleteKey(v.ctx, v.session.Account, id)
}
