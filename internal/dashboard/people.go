// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/user"
)

func (d *Dashboard) people(v *requestContext) (page, error) {
	members, err := d.Users.Members(v.ctx, v.session.Account)
	if err != nil {
		return page{}, err
	}
	open, err := d.Users.Invitations(v.ctx, v.session.Account)
	return page{Template: "people", Title: "People", Section: "people", Data: struct {
		Members []user.Member
		Open    []user.Link
		Roles   [][2]string
	}{members, open, [][2]string{{"member", "Member: everything but people and API keys"}, {"owner", "Owner: everything"}, {"reader", "Reader: looks, changes nothing"}}}}, err
}

// invite sends an invitation. Nobody here sees its link, which proves that the person reads the
// mail of the address.
func (d *Dashboard) invite(v *requestContext) (actionResult, error) {
	email := v.formText("email")
	err := d.Users.Invite(v.ctx, v.session, v.session.Account, v.account.Name, email, user.Role(v.formText("role")))
	return actionResult{RedirectTo: "/people", Summary: "Sent an invitation to " + email + "."}, err
}

func (d *Dashboard) withdrawInvitation(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/people", Summary: "Withdrew an invitation."}, d.Users.WithdrawInvitation(v.ctx, v.session.Account, id)
}

func (d *Dashboard) setRole(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	who, err := d.Users.Get(v.ctx, id)
	if err != nil {
		return actionResult{}, err
	}
	role := user.Role(v.formText("role"))
	return actionResult{RedirectTo: "/people", Summary: "Made " + who.Email + " " + map[user.Role]string{user.RoleOwner: "an owner", user.RoleMember: "a member", user.RoleReader: "a reader"}[role] + "."},
		d.Users.SetRole(v.ctx, v.session.Account, id, role)
}

// setMailAccess grants or revokes a member's right to read the account's mail.
func (d *Dashboard) setMailAccess(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	who, err := d.Users.Get(v.ctx, id)
	if err != nil {
		return actionResult{}, err
	}
	may, told := v.formText("mail") != "", who.Email+" may no longer read mail."
	if may {
		told = who.Email + " may read mail."
	}
	return actionResult{RedirectTo: "/people", Summary: told}, d.Users.SetReadsMail(v.ctx, v.session.Account, id, may)
}

func (d *Dashboard) removeMember(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	who, err := d.Users.Get(v.ctx, id)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/people", Summary: "Removed " + who.Email + " from the account."}, d.Users.RemoveMember(v.ctx, v.session.Account, id)
}

func (d *Dashboard) activity(v *requestContext) (page, error) {
	p := v.listPage()
	list, more, err := d.Audit.List(v.ctx, v.session.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []audit.Entry
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = newPager("/activity", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "activity", Title: "Activity", Section: "activity", Data: data}, nil
}
