// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// enforcements are what may be done with mail that fails DMARC.
func enforcements() [][2]string {
	return [][2]string{
		{string(domain.Enforce), "Do as the author’s domain asks: refuse it or file it in Junk"},
		{string(domain.Junk), "File it in Junk, refuse nothing"},
		{string(domain.Off), "Take it like any other"},
	}
}

// filterings are what may be done with mail that the spam filter objects to.
func filterings() [][2]string {
	return [][2]string{
		{string(domain.Enforce), "Do as the filter asks: refuse it or file it in Junk"},
		{string(domain.Junk), "File it in Junk, refuse nothing"},
		{string(domain.Off), "Take it like any other"},
	}
}

// stsModes are what may be asked of those who send.
func stsModes() [][2]string {
	return [][2]string{
		{string(domain.STSTesting), "Testing: send anyway, and report what went wrong"},
		{string(domain.STSEnforce), "Enforce: do not send unless it is safe"},
		{string(domain.STSNone), "None: no demands"},
	}
}

// spamLevels are how strict the spam filter may be with a mailbox.
func spamLevels() [][2]string {
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

// choice is what is said of the option that was chosen.
func choice(options [][2]string, chosen any) string {
	for _, o := range options {
		if o[0] == fmt.Sprint(chosen) {
			return o[1]
		}
	}
	return ""
}

func (d *Dashboard) setArriving(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	if _, err := d.Domains.Get(v.ctx, v.in.Account, id); err != nil {
		return done{}, err
	}
	dmarc, spam, sts := domain.Enforcement(v.text("dmarc_enforcement")), domain.Enforcement(v.text("spam_filtering")), domain.STSMode(v.text("mta_sts"))
	changed, err := d.Domains.Change(v.ctx, v.in.Account, id, domain.Change{Enforcement: &dmarc, Filtering: &spam, STS: &sts})
	if err != nil {
		return done{}, err
	}
	return done{To: "/domains/" + id.String(), Told: "Saved what is done with mail to " + changed.DisplayName + "."}, nil
}

func (d *Dashboard) setSpamFilter(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	level := mailbox.SpamFilter(v.text("spam_filter"))
	_, err = d.Mailboxes.Update(v.ctx, v.in.Account, m.ID, mailbox.Change{SpamFilter: &level})
	return done{To: "/mailboxes/" + m.ID.String(), Told: "Saved how strict the spam filter of " + m.Address + " is."}, err
}
