// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/user"
)

func (d *Dashboard) people(v *visit) (page, error) {
	members, err := d.Users.Members(v.ctx, v.in.Account)
	if err != nil {
		return page{}, err
	}
	open, err := d.Users.Invitations(v.ctx, v.in.Account)
	return page{Template: "people", Title: "People", Section: "people", Data: struct {
		Members []user.Member
		Open    []user.Ticket
		Roles   [][2]string
	}{members, open, [][2]string{{"member", "Member: everything but people and API keys"}, {"owner", "Owner: everything"}, {"reader", "Reader: looks, changes nothing"}}}}, err
}

// invite sends an invitation. Nobody here sees its link: it proves that who
// follows it reads the mail of the address.
func (d *Dashboard) invite(v *visit) (done, error) {
	email := v.text("email")
	err := d.Users.Invite(v.ctx, v.in, v.in.Account, v.account.Name, email, user.Role(v.text("role")))
	return done{To: "/people", Told: "Sent an invitation to " + email + "."}, err
}

func (d *Dashboard) withdraw(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	return done{To: "/people", Told: "Withdrew an invitation."}, d.Users.Withdraw(v.ctx, v.in.Account, id)
}

func (d *Dashboard) setRole(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	who, err := d.Users.Get(v.ctx, id)
	if err != nil {
		return done{}, err
	}
	role := user.Role(v.text("role"))
	return done{To: "/people", Told: "Made " + who.Email + " " + map[user.Role]string{user.Owner: "an owner", user.Worker: "a member", user.Reader: "a reader"}[role] + "."},
		d.Users.SetRole(v.ctx, v.in.Account, id, role)
}

// setReadsMail lets a member read mail of the account, or no longer.
func (d *Dashboard) setReadsMail(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	who, err := d.Users.Get(v.ctx, id)
	if err != nil {
		return done{}, err
	}
	may, told := v.text("mail") != "", who.Email+" may no longer read mail."
	if may {
		told = who.Email + " may read mail."
	}
	return done{To: "/people", Told: told}, d.Users.SetReadsMail(v.ctx, v.in.Account, id, may)
}

func (d *Dashboard) removeMember(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	who, err := d.Users.Get(v.ctx, id)
	if err != nil {
		return done{}, err
	}
	return done{To: "/people", Told: "Removed " + who.Email + " from the account."}, d.Users.Remove(v.ctx, v.in.Account, id)
}

func (d *Dashboard) activity(v *visit) (page, error) {
	p := v.pageOf()
	list, more, err := d.Audit.List(v.ctx, v.in.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []audit.Entry
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = pagerOf("/activity", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "activity", Title: "Activity", Section: "activity", Data: data}, nil
}
