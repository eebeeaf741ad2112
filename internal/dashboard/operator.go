// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/user"
)

// Health is how the service is, for its operators.
type Health struct {
	Engine string // of the database
	Node   string // that answers
	Queue  queue.Stats
}

func (d *Dashboard) accounts(v *visit) (page, error) {
	p := v.pageOf()
	list, more, err := d.Accounts.List(v.ctx, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List   []account.Account
		Pager  pager
		Health Health
	}{List: list, Health: d.Health()}
	if n := len(list); n > 0 {
		data.Pager = pagerOf("/operator", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "accounts", Title: "Accounts", Section: "operator", Data: data}, nil
}

// addAccount makes an account, and invites its first owner.
func (d *Dashboard) addAccount(v *visit) (done, error) {
	made, err := d.Accounts.Create(v.ctx, v.text("email"), v.text("name"))
	if err != nil {
		return done{}, err
	}
	did, err := d.inviteOwner(v, made, v.text("email"))
	if err != nil { // the account is there all the same
		d.Log.WarnContext(v.ctx, "invitation not sent", "request", v.requestID(), "account", made.ID, "err", err)
		did = done{To: accountPath(made), Customer: made.ID, Told: "Made the account " + made.Email + ". No invitation could be sent."}
	}
	return did, nil
}

func accountPath(acc account.Account) string { return "/operator/accounts/" + acc.ID.String() }

func (d *Dashboard) inviteOwner(v *visit, acc account.Account, email string) (done, error) {
	err := d.Users.Invite(v.ctx, v.in, acc.ID, acc.Name, email, user.Owner)
	return done{To: accountPath(acc), Customer: acc.ID, Told: "Sent an invitation to " + email + ", as an owner of the account."}, err
}

// shownAccount is what an operator sees of an account.
type shownAccount struct {
	Account account.Account
	Members []user.Member
	Limits  []shownLimit
	Domains []domain.Domain // the newest
	More    bool            // there are more domains
}

type shownLimit struct {
	Name, Label string
	Set         string // as it is entered; "" as for all
	Holds       int64  // 0: none
}

var limitLabels = map[string]string{
	"requests_per_second": "Requests a second, on each node", "burst": "Requests at once", "sends_per_hour": "Messages an hour",
	"sends_per_day": "Messages a day", "recipients_per_day": "Recipients a day", "storage_mb": "Storage, in megabytes",
}

// customer finds the account of a path.
func (d *Dashboard) customer(v *visit) (account.Account, error) {
	id, err := v.id("id")
	if err != nil {
		return account.Account{}, err
	}
	if id == account.Operators {
		return account.Account{}, notFound()
	}
	return d.Accounts.Get(v.ctx, id)
}

func (d *Dashboard) showAccount(v *visit) (page, error) {
	acc, err := d.customer(v)
	if err != nil {
		return page{}, err
	}
	s := shownAccount{Account: acc}
	if s.Members, err = d.Users.Members(v.ctx, acc.ID); err != nil {
		return page{}, err
	}
	if s.Domains, s.More, err = d.Domains.List(v.ctx, acc.ID, db.Page{Limit: db.MaxPage}); err != nil {
		return page{}, err
	}
	set, err := d.Limits.OfAccount(v.ctx, acc.ID)
	if err != nil {
		return page{}, err
	}
	holds, err := d.Limits.Account(v.ctx, acc.ID)
	if err != nil {
		return page{}, err
	}
	for _, name := range limit.Names() {
		l := shownLimit{Name: name, Label: limitLabels[name], Holds: holds.Get(name)}
		if n := set.Get(name); n != limit.Default {
			l.Set = number(n)
		}
		s.Limits = append(s.Limits, l)
	}
	return page{Template: "account", Title: acc.Email, Section: "operator", Data: s}, nil
}

func (d *Dashboard) setLimits(v *visit) (done, error) {
	acc, err := d.customer(v)
	if err != nil {
		return done{}, err
	}
	set := limit.All(limit.Default)
	var bad fault.Fields
	for _, name := range limit.Names() {
		if v.text(name) == "" {
			continue
		}
		n, err := v.number(name)
		if err := bad.Merge(err); err != nil {
			return done{}, err
		}
		if n < 0 {
			bad.Add(name, "out_of_range", "Give 0 for no limit, or leave it empty for what holds for all.")
		}
		set.Put(name, int64(n))
	}
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	return done{To: accountPath(acc), Customer: acc.ID, Told: "Set the limits of " + acc.Email + "."}, d.Limits.Change(v.ctx, acc.ID, set)
}

func (d *Dashboard) suspendAccount(v *visit) (done, error) {
	acc, err := d.customer(v)
	if err != nil {
		return done{}, err
	}
	// The form says what is wanted: who presses twice, or on an old page, wants no turn.
	status, told := v.text("status"), "Suspended "+acc.Email+"."
	if status == account.Active {
		told = "Ended the suspension of " + acc.Email + "."
	}
	return done{To: accountPath(acc), Customer: acc.ID, Told: told}, d.Accounts.SetStatus(v.ctx, acc.ID, status)
}

// suspendDomain suspends a domain of a customer, or ends that.
func (d *Dashboard) suspendDomain(v *visit) (done, error) {
	acc, err := d.customer(v)
	if err != nil {
		return done{}, err
	}
	name := v.text("domain")
	if _, err := d.Domains.Named(v.ctx, acc.ID, name); err != nil {
		return done{}, err
	}
	yes, told := v.text("status") == domain.Suspended, "Ended the suspension of the domain "+name+"."
	if yes {
		told = "Suspended the domain " + name + "."
	}
	return done{To: "/operator/accounts/" + acc.ID.String(), Told: told}, d.SuspendDomain(v.ctx, name, yes)
}

func (d *Dashboard) linkAccount(v *visit) (done, error) {
	acc, err := d.customer(v)
	if err != nil {
		return done{}, err
	}
	return d.inviteOwner(v, acc, acc.Email)
}
