// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// shownMailboxes is what the list of mailboxes shows.
type shownMailboxes struct {
	List     []mailbox.Mailbox
	Pager    pager
	Domains  [][2]string // to choose from
	Input    string      // how it is chosen
	Domain   string      // the id of the chosen one, or its name
	Search   string
	Deleted  bool
	Filtered bool
	Ready    bool // there is a domain that mailboxes can be made under
}

func (d *Dashboard) mailboxes(v *visit) (page, error) {
	q, p := v.r.URL.Query(), v.pageOf()
	s := shownMailboxes{Domain: q.Get("domain"), Search: q.Get("search"), Deleted: q.Get("deleted") != ""}
	filter := mailbox.Filter{Search: s.Search, Deleted: s.Deleted}
	var err error
	if s.Domain != "" {
		if filter.Domain, err = d.domainMeant(v, s.Domain); fault.Is(err, fault.NotFound) {
			filter.Domain, err = -1, nil // of none
		}
	}
	if err != nil {
		return page{}, err
	}
	s.Filtered = s.Search != "" || filter.Domain != 0
	var more bool
	if s.List, more, err = d.Mailboxes.List(v.ctx, v.in.Account, filter, p); err != nil {
		return page{}, err
	}
	all, err := d.allDomains(v)
	if err != nil {
		return page{}, err
	}
	s.Input = domainInput(all)
	s.Ready = s.Input == typed
	s.Domains = [][2]string{{"", "All domains"}}
	for _, x := range all {
		s.Domains = append(s.Domains, [2]string{x.ID.String(), x.DisplayName})
		s.Ready = s.Ready || x.OwnershipStatus == domain.Verified
	}
	if n := len(s.List); n > 0 {
		path := "/mailboxes?" + query("domain", s.Domain, "search", s.Search)
		if s.Deleted {
			path += "&deleted=1"
		}
		s.Pager = pagerOf(path, p, n, more, s.List[0].ID, s.List[n-1].ID)
	}
	title := "Mailboxes"
	if s.Deleted {
		title = "Deleted mailboxes"
	}
	return page{Template: "mailboxes", Title: title, Section: "mailboxes", Data: s}, nil
}

// maxChoice bounds the list to choose a domain from: of an account with so many its
// name is typed.
const maxChoice = 1000

const typed = "text" // as the type of an input

func domainInput(all []domain.Domain) string {
	if len(all) < maxChoice {
		return "select"
	}
	return typed
}

// domainMeant reads what was chosen or typed: an id, or the name of a domain of the
// account, which is a fault.NotFound if it has none.
func (d *Dashboard) domainMeant(v *visit, text string) (db.ID, error) {
	if id, err := db.ParseID(text); err == nil {
		return id, nil
	}
	return d.Domains.Named(v.ctx, v.in.Account, text)
}

// allDomains returns the account's domains, the newest first; of very many the
// newest.
func (d *Dashboard) allDomains(v *visit) (all []domain.Domain, err error) {
	for p := (db.Page{Limit: db.MaxPage}); len(all) < maxChoice; {
		some, more, err := d.Domains.List(v.ctx, v.in.Account, p)
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

func (d *Dashboard) newMailbox(v *visit) (page, error) {
	all, err := d.allDomains(v)
	if err != nil {
		return page{}, err
	}
	choice := [][2]string{}
	for _, x := range all {
		if x.OwnershipStatus == domain.Verified {
			choice = append(choice, [2]string{x.ID.String(), x.DisplayName})
		}
	}
	return page{Template: "mailbox-new", Title: "New mailbox", Section: "mailboxes", Data: struct {
		Domains [][2]string
		Input   string
		Quota   int
	}{choice, domainInput(all), mailbox.DefaultQuotaMB}}, nil
}

// madeMailbox is a mailbox whose password is shown.
type madeMailbox struct {
	Mailbox  mailbox.Mailbox
	Password string // "" for one that was chosen
	New      bool   // the mailbox itself is new
}

func (d *Dashboard) addMailbox(v *visit) (done, error) {
	var bad fault.Fields
	n := mailbox.New{LocalPart: v.text("local_part"), DisplayName: v.text("display_name"), Password: v.chosenPassword()}
	var err error
	if n.Domain, err = d.domainMeant(v, v.text("domain")); fault.Is(err, fault.NotFound) {
		bad.Add("domain", "required", "Choose a domain.")
	} else if err != nil {
		return done{}, err
	}
	quota, err := v.number("quota_mb")
	if err := bad.Merge(err); err != nil {
		return done{}, err
	}
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	n.QuotaMB = &quota
	made, password, err := d.Mailboxes.Create(v.ctx, v.in.Account, n)
	if err != nil {
		return done{}, err
	}
	return done{Told: "Made the mailbox " + made.Address + ".", Show: showPassword(madeMailbox{made, password, true})}, nil
}

// chosenPassword is the password of the form; nil when one shall be made.
func (v *visit) chosenPassword() *string {
	if p := v.form.Get("password"); p != "" {
		return &p
	}
	return nil
}

func showPassword(m madeMailbox) *page {
	return &page{Template: "mailbox-password", Title: m.Mailbox.Address, Section: "mailboxes", Data: m}
}

// box finds the mailbox that the path names.
func (d *Dashboard) box(v *visit) (mailbox.Mailbox, error) {
	id, err := v.id("id")
	if err != nil {
		return mailbox.Mailbox{}, err
	}
	return d.Mailboxes.Get(v.ctx, v.in.Account, id)
}

// shownMailbox is what its page shows of a mailbox.
type shownMailbox struct {
	mailbox.Mailbox
	Away shownAway
}

func (d *Dashboard) mailbox(v *visit) (page, error) {
	m, err := d.box(v)
	if err != nil {
		return page{}, err
	}
	s := shownMailbox{Mailbox: m}
	s.Away, err = d.awayOf(v, m, "/mailboxes/"+m.ID.String())
	return page{Template: "mailbox", Title: m.Address, Section: "mailboxes", Data: s}, err
}

func (d *Dashboard) changeMailbox(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	quota, err := v.number("quota_mb")
	if err != nil {
		return done{}, err
	}
	name := v.text("display_name")
	_, err = d.Mailboxes.Update(v.ctx, v.in.Account, m.ID, mailbox.Change{DisplayName: &name, QuotaMB: &quota})
	return done{To: "/mailboxes/" + m.ID.String(), Told: "Changed the mailbox " + m.Address + "."}, err
}

func (d *Dashboard) suspendMailbox(v *visit) (done, error) {
	return d.setMailboxStatus(v, mailbox.Suspended, "Suspended")
}

func (d *Dashboard) resumeMailbox(v *visit) (done, error) {
	return d.setMailboxStatus(v, mailbox.Active, "Resumed")
}

func (d *Dashboard) setMailboxStatus(v *visit, status, did string) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	_, err = d.Mailboxes.Update(v.ctx, v.in.Account, m.ID, mailbox.Change{Status: &status})
	return done{To: "/mailboxes/" + m.ID.String(), Told: did + " the mailbox " + m.Address + "."}, err
}

func (d *Dashboard) setMailboxPassword(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	password, err := d.Mailboxes.SetPassword(v.ctx, v.in.Account, m.ID, v.chosenPassword())
	return done{Told: "Set a new password of " + m.Address + ".", Show: showPassword(madeMailbox{m, password, false})}, err
}

func (d *Dashboard) deleteMailbox(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return done{To: "/mailboxes", Told: "Deleted the mailbox " + m.Address + ". It can be restored for 30 days."}, d.Mailboxes.Delete(v.ctx, v.in.Account, m.ID)
}

func (d *Dashboard) restoreMailbox(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	m, err := d.Mailboxes.Restore(v.ctx, v.in.Account, id)
	return done{To: "/mailboxes/" + id.String(), Told: "Restored the mailbox " + m.Address + "."}, err
}

// restorable is the list that has the button to restore.
func (d *Dashboard) restorable(v *visit) (page, error) {
	v.r.URL.RawQuery = query("deleted", "1")
	return d.mailboxes(v)
}
