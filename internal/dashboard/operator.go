// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/user"
)

// Health is the state of the service for its operators.
type Health struct {
	Engine string // database engine
	Node   string // node that responds
	Queue  queue.Stats
}

func (d *Dashboard) accounts(v *requestContext) (page, error) {
	p := v.listPage()
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
		data.Pager = newPager("/operator", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "accounts", Title: "Accounts", Section: "operator", Data: data}, nil
}

// addAccount creates an account and invites its first owner.
func (d *Dashboard) addAccount(v *requestContext) (actionResult, error) {
	made, err := d.Accounts.Create(v.ctx, v.formText("email"), v.formText("name"))
	if err != nil {
		return actionResult{}, err
	}
	did, err := d.inviteAccountOwner(v, made, v.formText("email"))
	if err != nil { // the account exists nevertheless
		d.Log.WarnContext(v.ctx, "invitation not sent", "request", v.requestID(), "account", made.ID, "err", err)
		did = actionResult{RedirectTo: accountPath(made), Customer: made.ID, Summary: "Made the account " + made.Email + ". No invitation could be sent."}
	}
	return did, nil
}

func accountPath(acc account.Account) string { return "/operator/accounts/" + acc.ID.String() }

func (d *Dashboard) inviteAccountOwner(v *requestContext, acc account.Account, email string) (actionResult, error) {
	err := d.Users.Invite(v.ctx, v.session, acc.ID, acc.Name, email, user.RoleOwner)
	return actionResult{RedirectTo: accountPath(acc), Customer: acc.ID, Summary: "Sent an invitation to " + email + ", as an owner of the account."}, err
}

// accountPage is the data of an operator's page about an account.
type accountPage struct {
	Account account.Account
	Members []user.Member
	Limits  []limitRow
	Domains []domain.Domain // newest first
	More    bool            // whether there are more domains
}

type limitRow struct {
	Name, Label string
	Set         string // as entered; "" for the default
	Holds       int64  // effective value; 0 for none
}

var limitLabels = map[string]string{
	"requests_per_second": "Requests a second, on each node", "burst": "Requests at once", "sends_per_hour": "Messages an hour",
	"sends_per_day": "Messages a day", "recipients_per_day": "Recipients a day", "storage_mb": "Storage, in megabytes",
}

// findCustomer returns the account that the path names.
func (d *Dashboard) findCustomer(v *requestContext) (account.Account, error) {
	id, err := v.pathID("id")
	if err != nil {
		return account.Account{}, err
	}
	if id == account.OperatorAccount {
		return account.Account{}, notFound()
	}
	return d.Accounts.Get(v.ctx, id)
}

func (d *Dashboard) account(v *requestContext) (page, error) {
	acc, err := d.findCustomer(v)
	if err != nil {
		return page{}, err
	}
	s := accountPage{Account: acc}
	if s.Members, err = d.Users.Members(v.ctx, acc.ID); err != nil {
		return page{}, err
	}
	if s.Domains, s.More, err = d.Domains.List(v.ctx, acc.ID, db.Page{Limit: db.MaxPageSize}); err != nil {
		return page{}, err
	}
	set, err := d.Limits.Overrides(v.ctx, acc.ID)
	if err != nil {
		return page{}, err
	}
	holds, err := d.Limits.AccountLimits(v.ctx, acc.ID)
	if err != nil {
		return page{}, err
	}
	for _, name := range quota.Names() {
		l := limitRow{Name: name, Label: limitLabels[name], Holds: holds.Value(name)}
		if n := set.Value(name); n != quota.Default {
			l.Set = formatInt(n)
		}
		s.Limits = append(s.Limits, l)
	}
	return page{Template: "account", Title: acc.Email, Section: "operator", Data: s}, nil
}

func (d *Dashboard) setLimits(v *requestContext) (actionResult, error) {
	acc, err := d.findCustomer(v)
	if err != nil {
		return actionResult{}, err
	}
	set := quota.Uniform(quota.Default)
	var bad fault.FieldErrors
	for _, name := range quota.Names() {
		if v.formText(name) == "" {
			continue
		}
		n, err := v.formInt(name)
		if err := bad.Merge(err); err != nil {
			return actionResult{}, err
		}
		if n < 0 {
			bad.Add(name, "out_of_range", "Give 0 for no limit, or leave it empty for what holds for all.")
		}
		set.SetValue(name, int64(n))
	}
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: accountPath(acc), Customer: acc.ID, Summary: "Set the limits of " + acc.Email + "."}, d.Limits.SetOverrides(v.ctx, acc.ID, set)
}

func (d *Dashboard) suspendAccount(v *requestContext) (actionResult, error) {
	acc, err := d.findCustomer(v)
	if err != nil {
		return actionResult{}, err
	}
	// The form has the desired status, so that a double click or an old page doesn't toggle it.
	status, told := v.formText("status"), "Suspended "+acc.Email+"."
	if status == account.StatusActive {
		told = "Ended the suspension of " + acc.Email + "."
	}
	return actionResult{RedirectTo: accountPath(acc), Customer: acc.ID, Summary: told}, d.Accounts.SetStatus(v.ctx, acc.ID, status)
}

// suspendDomain suspends a customer's domain or lifts the suspension.
func (d *Dashboard) suspendDomain(v *requestContext) (actionResult, error) {
	acc, err := d.findCustomer(v)
	if err != nil {
		return actionResult{}, err
	}
	name := v.formText("domain")
	if _, err := d.Domains.IDByName(v.ctx, acc.ID, name); err != nil {
		return actionResult{}, err
	}
	yes, told := v.formText("status") == domain.StatusSuspended, "Ended the suspension of the domain "+name+"."
	if yes {
		told = "Suspended the domain " + name + "."
	}
	return actionResult{RedirectTo: "/operator/accounts/" + acc.ID.String(), Summary: told}, d.Domains.SetSuspended(v.ctx, name, yes)
}

func (d *Dashboard) resendInvitation(v *requestContext) (actionResult, error) {
	acc, err := d.findCustomer(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.inviteAccountOwner(v, acc, acc.Email)
}
