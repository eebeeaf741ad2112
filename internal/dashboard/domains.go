// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
)

// pager has the paths of the pages before and after a page of a list.
type pager struct{ Newer, Older string }

// newPager builds a pager from the requested page and from whether more items follow in that
// direction. The path may have a query.
func newPager(path string, p db.Page, n int, more bool, first, last db.ID) (out pager) {
	if n == 0 {
		return out
	}
	if strings.Contains(path, "?") {
		path += "&"
	} else {
		path += "?"
	}
	back := p.After == 0 && p.Before != 0
	if p.After != 0 || back && more {
		out.Newer = path + encodeQuery("before", first.String())
	}
	if back || more {
		out.Older = path + encodeQuery("after", last.String())
	}
	return out
}

// newSearchPager is newPager for a searched list, whose pages may be short. next is where the
// search continues in the requested direction.
func newSearchPager(path string, search url.Values, p db.Page, n int, more bool, first, last, next db.ID) (out pager) {
	q := maps.Clone(search)
	to := func(direction string, at db.ID) string {
		q.Del("after")
		q.Del("before")
		q.Set(direction, at.String())
		return path + "?" + q.Encode()
	}
	back := p.After == 0 && p.Before != 0
	if n == 0 {
		first, last = p.After, p.Before
	}
	if back {
		out.Older = to("after", last)
		if more {
			out.Newer = to("before", next)
		}
		return out
	}
	if p.After != 0 {
		out.Newer = to("before", first)
	}
	if more {
		out.Older = to("after", next)
	}
	return out
}

func (d *Dashboard) domains(v *requestContext) (page, error) {
	p := v.listPage()
	list, more, err := d.Domains.List(v.ctx, v.session.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []domain.Domain
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = newPager("/domains", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "domains", Title: "Domains", Section: "domains", Data: data}, nil
}

func (d *Dashboard) addDomain(v *requestContext) (actionResult, error) {
	made, err := d.Domains.Create(v.ctx, v.session.Account, v.formText("name"))
	return actionResult{RedirectTo: "/domains/" + made.ID.String(), Summary: "Added the domain " + made.DisplayName + "."}, err
}

// domainPage is the data of a domain's page.
type domainPage struct {
	Domain                domain.Domain
	Required, Recommended []domain.Record
	Waiting               bool // whether records are still being checked: the page polls for updates
	Keys                  []domain.DKIMKey
	Providers             []dnsProvider
}

func (d *Dashboard) domain(v *requestContext) (page, error) {
	s, err := d.loadDomainPage(v)
	if err != nil {
		return page{}, err
	}
	s.Providers = providers
	return page{Template: "domain", Title: s.Domain.DisplayName, Section: "domains", Data: s}, nil
}

// domainRecords is the part of the page that is updated with the DNS check results.
func (d *Dashboard) domainRecords(v *requestContext) (page, error) {
	s, err := d.loadDomainPage(v)
	return page{Template: "domain", Part: true, Data: s}, err
}

func (d *Dashboard) loadDomainPage(v *requestContext) (domainPage, error) {
	id, err := v.pathID("id")
	if err != nil {
		return domainPage{}, err
	}
	found, err := d.Domains.Get(v.ctx, v.session.Account, id)
	if err != nil {
		return domainPage{}, err
	}
	s := domainPage{Domain: found, Waiting: found.Status == domain.StatusPending}
	if s.Keys, _, err = d.Domains.Keys(v.ctx, v.session.Account, id, db.Page{Limit: db.MaxPageSize}); err != nil {
		return s, err
	}
	s.Required, s.Recommended = splitRequired(found.Records)
	return s, nil
}

// splitRequired separates the required records from the others.
func splitRequired(all []domain.Record) (required, optional []domain.Record) {
	for _, r := range all {
		if r.Required {
			required = append(required, r)
		} else {
			optional = append(optional, r)
		}
	}
	return required, optional
}

func (d *Dashboard) checkDomain(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	found, err := d.Domains.CheckDNS(v.ctx, v.session.Account, id)
	return actionResult{RedirectTo: "/domains/" + id.String(), Summary: "Looked for the records of " + found.DisplayName + "."}, err
}

func (d *Dashboard) zoneFile(v *requestContext) error {
	id, err := v.pathID("id")
	if err != nil {
		return err
	}
	found, err := d.Domains.Get(v.ctx, v.session.Account, id)
	if err != nil {
		return err
	}
	text, err := d.Domains.Zone(v.ctx, v.session.Account, id)
	if err != nil {
		return err
	}
	v.writeZone(found.Name, text)
	return nil
}

// writeZone responds with a zone file.
func (v *requestContext) writeZone(name, text string) {
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.zone"`)
	_, _ = v.w.Write([]byte(text))
}

func (d *Dashboard) rotateDKIMKeys(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	_, err = d.Domains.RotateKeys(v.ctx, v.session.Account, id, "")
	return actionResult{RedirectTo: "/domains/" + id.String(), Summary: "New keys are made: publish their records, and they will be used."}, err
}

func (d *Dashboard) setDKIMRotation(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	days, err := v.formInt("days")
	if err != nil {
		return actionResult{}, err
	}
	changed, err := d.Domains.Update(v.ctx, v.session.Account, id, domain.Change{RotationDays: &days})
	if err != nil {
		return actionResult{}, renameField(err, "dkim_rotation_days", "days")
	}
	return actionResult{RedirectTo: "/domains/" + id.String(), Summary: "Saved how often the keys of " + changed.DisplayName + " are replaced."}, nil
}

func (d *Dashboard) deleteDomain(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	found, err := d.Domains.Get(v.ctx, v.session.Account, id)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/domains", Summary: "Deleted the domain " + found.DisplayName + "."}, d.Domains.Delete(v.ctx, v.session.Account, id)
}

// dnsProvider describes where a DNS provider has its record settings, and its quirks.
type dnsProvider struct{ Name, Where, Quirk string }

var providers = []dnsProvider{
	{"Cloudflare", "Choose the domain, then DNS, Records, Add record.", "Leave the cloud grey (DNS only) for every record of mail: a proxied name does not take mail. Names may be entered in full."},
	{"Amazon Route 53", "Hosted zones, the domain, Create record.", "TXT values stand in double quotes, each piece at most 255 characters; an MX value begins with its priority, as in “10 mail.example.net”."},
	{"Gandi", "Domain, the domain, DNS Records, Add.", "The name is without the domain, “@” for the domain itself. A target outside of your domain ends with a dot, else Gandi appends your domain."},
	{"OVHcloud", "Web Cloud, Domain names, the domain, DNS zone, Add an entry.", "Sub-domain is the name without the domain. Use the plain TXT form for SPF, DKIM and DMARC: the assistants change the values."},
	{"GoDaddy", "My Products, the domain, DNS, Add New Record.", "The name is without the domain, “@” for the domain itself. Remove the parked MX records first."},
	{"Namecheap", "Domain List, Manage, Advanced DNS.", "Set Mail Settings to Custom MX first. Host is the name without the domain, “@” for the domain itself."},
	{"Hetzner", "DNS Console, the zone, Add record.", "A target outside of your domain ends with a dot. Long TXT values are split by the console itself."},
	{"IONOS", "Domains & SSL, the domain, DNS, Add record.", "Switch the mail service of IONOS off, else its MX and SPF records come back."},
}

// renameField changes the path of a field error to the form's name for the field.
func renameField(err error, field, as string) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	told := *f
	told.Fields = slices.Clone(f.Fields)
	for i := range told.Fields {
		if told.Fields[i].Path == field {
			told.Fields[i].Path = as
		}
	}
	return &told
}
