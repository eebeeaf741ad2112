// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// mailboxesPage is the data of the mailbox list.
type mailboxesPage struct {
	List     []mailbox.Mailbox
	Pager    pager
	Domains  [][2]string // options of the domain filter
	Input    string      // type of the filter's input
	Domain   string      // id or name of the chosen domain
	Search   string
	Deleted  bool
	Filtered bool
	Ready    bool // whether a domain exists for mailboxes
}

func (d *Dashboard) mailboxes(v *requestContext) (page, error) {
	q, p := v.r.URL.Query(), v.listPage()
	s := mailboxesPage{Domain: q.Get("domain"), Search: q.Get("search"), Deleted: q.Get("deleted") != ""}
	filter := mailbox.Filter{Search: s.Search, Deleted: s.Deleted}
	var err error
	if s.Domain != "" {
		if filter.Domain, err = d.domainIDFromForm(v, s.Domain); fault.Is(err, fault.NotFound) {
			filter.Domain, err = -1, nil // matches nothing
		}
	}
	if err != nil {
		return page{}, err
	}
	s.Filtered = s.Search != "" || filter.Domain != 0
	var more bool
	if s.List, more, err = d.Mailboxes.List(v.ctx, v.session.Account, filter, p); err != nil {
		return page{}, err
	}
	all, err := d.domainsForChoice(v)
	if err != nil {
		return page{}, err
	}
	s.Input = domainInputType(all)
	s.Ready = s.Input == inputText
	s.Domains = [][2]string{{"", "All domains"}}
	for _, x := range all {
		s.Domains = append(s.Domains, [2]string{x.ID.String(), x.DisplayName})
		s.Ready = s.Ready || x.OwnershipStatus == domain.StatusVerified
	}
	if n := len(s.List); n > 0 {
		path := "/mailboxes?" + encodeQuery("domain", s.Domain, "search", s.Search)
		if s.Deleted {
			path += "&deleted=1"
		}
		s.Pager = newPager(path, p, n, more, s.List[0].ID, s.List[n-1].ID)
	}
	title := "Mailboxes"
	if s.Deleted {
		title = "Deleted mailboxes"
	}
	return page{Template: "mailboxes", Title: title, Section: "mailboxes", Data: s}, nil
}

// maxDomainOptions limits the options of the domain filter. For an account with more domains, the
// user types the name.
const maxDomainOptions = 1000

const inputText = "text" // type of an input

func domainInputType(all []domain.Domain) string {
	if len(all) < maxDomainOptions {
		return "select"
	}
	return inputText
}

// domainIDFromForm resolves an id or a domain name to a domain of the account. It returns a
// fault.NotFound if there is none.
func (d *Dashboard) domainIDFromForm(v *requestContext, text string) (db.ID, error) {
	if id, err := db.ParseID(text); err == nil {
		return id, nil
	}
	return d.Domains.IDByName(v.ctx, v.session.Account, text)
}

// domainsForChoice returns the account's domains, newest first; if there are very many, only the
// newest.
func (d *Dashboard) domainsForChoice(v *requestContext) (all []domain.Domain, err error) {
	for p := (db.Page{Limit: db.MaxPageSize}); len(all) < maxDomainOptions; {
		some, more, err := d.Domains.List(v.ctx, v.session.Account, p)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if !more {
			break
		}
		p.After = some[len(some)-1].ID
	}
	return all, nil
}

func (d *Dashboard) newMailbox(v *requestContext) (page, error) {
	all, err := d.domainsForChoice(v)
	if err != nil {
		return page{}, err
	}
	choice := [][2]string{}
	for _, x := range all {
		if x.OwnershipStatus == domain.StatusVerified {
			choice = append(choice, [2]string{x.ID.String(), x.DisplayName})
		}
	}
	return page{Template: "mailbox-new", Title: "New mailbox", Section: "mailboxes", Data: struct {
		Domains [][2]string
		Input   string
		Quota   int
	}{choice, domainInputType(all), mailbox.DefaultQuotaMB}}, nil
}

// mailboxPasswordPage shows a mailbox's password.
type mailboxPasswordPage struct {
	Mailbox  mailbox.Mailbox
	Password string // "" if the user chose it
	New      bool   // whether the mailbox is new
}

func (d *Dashboard) addMailbox(v *requestContext) (actionResult, error) {
	var bad fault.FieldErrors
	n := mailbox.CreateParams{LocalPart: v.formText("local_part"), DisplayName: v.formText("display_name"), Password: v.formPassword()}
	var err error
	if n.Domain, err = d.domainIDFromForm(v, v.formText("domain")); fault.Is(err, fault.NotFound) {
		bad.Add("domain", "required", "Choose a domain.")
	} else if err != nil {
		return actionResult{}, err
	}
	quota, err := v.formInt("quota_mb")
	if err := bad.Merge(err); err != nil {
		return actionResult{}, err
	}
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	n.QuotaMB = &quota
	made, password, err := d.Mailboxes.Create(v.ctx, v.session.Account, n)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{Summary: "Made the mailbox " + made.Address + ".", Page: passwordPage(mailboxPasswordPage{made, password, true})}, nil
}

// formPassword returns the password in the form, or nil to generate one.
func (v *requestContext) formPassword() *string {
	if p := v.form.Get("password"); p != "" {
		return &p
	}
	return nil
}

func passwordPage(m mailboxPasswordPage) *page {
	return &page{Template: "mailbox-password", Title: m.Mailbox.Address, Section: "mailboxes", Data: m}
}

// findMailbox returns the mailbox that the path names.
func (d *Dashboard) findMailbox(v *requestContext) (mailbox.Mailbox, error) {
	id, err := v.pathID("id")
	if err != nil {
		return mailbox.Mailbox{}, err
	}
	return d.Mailboxes.Get(v.ctx, v.session.Account, id)
}

// mailboxPage is the data of a mailbox's page.
type mailboxPage struct {
	mailbox.Mailbox
	Away replyAndForwardingForms
}

func (d *Dashboard) mailbox(v *requestContext) (page, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return page{}, err
	}
	s := mailboxPage{Mailbox: m}
	s.Away, err = d.loadReplyAndForwardingForms(v, m, "/mailboxes/"+m.ID.String())
	return page{Template: "mailbox", Title: m.Address, Section: "mailboxes", Data: s}, err
}

func (d *Dashboard) changeMailbox(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	quota, err := v.formInt("quota_mb")
	if err != nil {
		return actionResult{}, err
	}
	name := v.formText("display_name")
	_, err = d.Mailboxes.Update(v.ctx, v.session.Account, m.ID, mailbox.Change{DisplayName: &name, QuotaMB: &quota})
	return actionResult{RedirectTo: "/mailboxes/" + m.ID.String(), Summary: "Changed the mailbox " + m.Address + "."}, err
}

func (d *Dashboard) suspendMailbox(v *requestContext) (actionResult, error) {
	return d.setMailboxStatus(v, mailbox.StatusSuspended, "Suspended")
}

func (d *Dashboard) resumeMailbox(v *requestContext) (actionResult, error) {
	return d.setMailboxStatus(v, mailbox.StatusActive, "Resumed")
}

func (d *Dashboard) setMailboxStatus(v *requestContext, status, did string) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	_, err = d.Mailboxes.Update(v.ctx, v.session.Account, m.ID, mailbox.Change{Status: &status})
	return actionResult{RedirectTo: "/mailboxes/" + m.ID.String(), Summary: did + " the mailbox " + m.Address + "."}, err
}

func (d *Dashboard) setMailboxPassword(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	password, err := d.Mailboxes.SetPassword(v.ctx, v.session.Account, m.ID, v.formPassword())
	return actionResult{Summary: "Set a new password of " + m.Address + ".", Page: passwordPage(mailboxPasswordPage{m, password, false})}, err
}

func (d *Dashboard) deleteMailbox(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/mailboxes", Summary: "Deleted the mailbox " + m.Address + ". It can be restored for 30 days."}, d.Mailboxes.Delete(v.ctx, v.session.Account, m.ID)
}

func (d *Dashboard) restoreMailbox(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	m, err := d.Mailboxes.Restore(v.ctx, v.session.Account, id)
	return actionResult{RedirectTo: "/mailboxes/" + id.String(), Summary: "Restored the mailbox " + m.Address + "."}, err
}

// deletedMailboxes shows the deleted mailboxes, which can be restored.
func (d *Dashboard) deletedMailboxes(v *requestContext) (page, error) {
	v.r.URL.RawQuery = encodeQuery("deleted", "1")
	return d.mailboxes(v)
}
