// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// dmarcOptions are the actions for mail that fails DMARC.
func dmarcOptions() [][2]string {
	return [][2]string{
		{string(domain.EnforceFully), "Do as the author’s domain asks: refuse it or file it in Junk"},
		{string(domain.EnforceJunk), "File it in Junk, refuse nothing"},
		{string(domain.EnforceOff), "Take it like any other"},
	}
}

// spamActionOptions are the actions for mail that the spam filter flags.
func spamActionOptions() [][2]string {
	return [][2]string{
		{string(domain.EnforceFully), "Do as the filter asks: refuse it or file it in Junk"},
		{string(domain.EnforceJunk), "File it in Junk, refuse nothing"},
		{string(domain.EnforceOff), "Take it like any other"},
	}
}

// stsOptions are the MTA-STS modes.
func stsOptions() [][2]string {
	return [][2]string{
		{string(domain.STSTesting), "Testing: send anyway, and report what went wrong"},
		{string(domain.STSEnforce), "Enforce: do not send unless it is safe"},
		{string(domain.STSNone), "None: no demands"},
	}
}

// spamStrictnessOptions are the strictness levels of a mailbox's spam filter.
func spamStrictnessOptions() [][2]string {
	words := map[mailbox.SpamFilter]string{
		mailbox.SpamOff:     "Off: nothing goes to Junk for it",
		mailbox.SpamLenient: "Lenient: it takes about twice the points, and nothing is refused",
		mailbox.SpamNormal:  "Normal: what the filter calls spam",
		mailbox.SpamStrict:  "Strict: about half of the points is enough",
	}
	var all [][2]string
	for _, f := range mailbox.SpamFilters() {
		all = append(all, [2]string{string(f), words[f]})
	}
	return all
}

// optionLabel returns the label of the chosen option.
func optionLabel(options [][2]string, chosen any) string {
	for _, o := range options {
		if o[0] == fmt.Sprint(chosen) {
			return o[1]
		}
	}
	return ""
}

func (d *Dashboard) setInboundPolicy(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	if _, err := d.Domains.Get(v.ctx, v.session.Account, id); err != nil {
		return actionResult{}, err
	}
	dmarc, spam, sts := domain.Enforcement(v.formText("dmarc_enforcement")), domain.Enforcement(v.formText("spam_filtering")), domain.STSMode(v.formText("mta_sts"))
	changed, err := d.Domains.Update(v.ctx, v.session.Account, id, domain.Change{DMARCEnforcement: &dmarc, SpamFiltering: &spam, STS: &sts})
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/domains/" + id.String(), Summary: "Saved what is done with mail to " + changed.DisplayName + "."}, nil
}

func (d *Dashboard) setSpamFilter(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	level := mailbox.SpamFilter(v.formText("spam_filter"))
	_, err = d.Mailboxes.Update(v.ctx, v.session.Account, m.ID, mailbox.Change{SpamFilter: &level})
	return actionResult{RedirectTo: "/mailboxes/" + m.ID.String(), Summary: "Saved how strict the spam filter of " + m.Address + " is."}, err
}
