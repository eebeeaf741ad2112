// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// An operator creates an account, limits it, suspends it, and views the queue.
func TestOperatorPages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/profile")
	b.press("/profile/accounts/" + account.OperatorAccount.String())
	b.reads("The service")
	b.looks("operator")
	b.fill("email", "customer@else.example")
	b.press("/operator")
	b.reads("Sent an invitation to customer@else.example")
	link(t, mailed(t, s, "customer@else.example", 1))
	b.accessible()
	b.open("/operator")
	made, err := s.Accounts.ByEmail(t.Context(), "customer@else.example")
	if err != nil {
		t.Fatal(err)
	}
	path := "/operator/accounts/" + made.ID.String()
	b.open(path)
	b.fill("sends_per_day", "250")
	b.press(path + "/limits")
	b.reads("Set the limits of customer@else.example.")
	if set, err := s.Limits.Overrides(t.Context(), made.ID); err != nil || set.SendsPerDay != 250 {
		t.Errorf("%+v %v", set, err)
	}
	b.looks("account")
	b.fill("sends_per_day", "-1")
	b.press(path + "/limits")
	b.reads("Give 0 for no limit")
	script[string](b, `document.querySelector("details.danger").open = true; ""`)
	b.press(path + "/suspend")
	b.reads("Suspended customer@else.example.")
	if acc, err := s.Accounts.Get(t.Context(), made.ID); err != nil || acc.Status != account.StatusSuspended {
		t.Errorf("%+v %v", acc, err)
	}
	b.open("/operator/queue")
	b.reads("Nothing waits")
	b.looks("queue")
}

// Double-clicking the button suspends the account nevertheless.
func TestSuspendTwice(t *testing.T) {
	s := servertest.Start(t)
	made, err := s.Accounts.Create(t.Context(), "customer@else.example", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Accounts.EnsureOperatorAccount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "ops@else.example", Name: "Ops", Password: colleague}, account.OperatorAccount); err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, s)
	v.signIn("ops@else.example", colleague)
	path := "/operator/accounts/" + made.ID.String()
	_, _, page := v.ask("GET", path, nil)
	form := url.Values{}
	if found := regexp.MustCompile(`/suspend">.*?<input type="hidden" name="(status)" value="(\w+)">`).FindStringSubmatch(page); found != nil {
		form.Set(found[1], found[2])
	}
	for range 2 {
		if status, to, text := v.ask("POST", path+"/suspend", form); status != 303 || to != path {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		if acc, err := s.Accounts.Get(t.Context(), made.ID); err != nil || acc.Status != account.StatusSuspended {
			t.Fatalf("%+v %v", acc, err)
		}
	}
}

// An operator's action on an account is in the activity of both accounts.
func TestActivityOfCustomers(t *testing.T) {
	s := servertest.Start(t)
	made, err := s.Accounts.Create(t.Context(), "customer@else.example", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Accounts.EnsureOperatorAccount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "ops@else.example", Name: "Ops", Password: colleague}, account.OperatorAccount); err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, s)
	v.signIn("ops@else.example", colleague)
	path := "/operator/accounts/" + made.ID.String()
	for _, c := range []struct {
		path string
		form url.Values
		told string
	}{
		{"/limits", url.Values{"sends_per_day": {"10"}}, "Set the limits of customer@else.example."},
		{"/suspend", url.Values{"status": {"suspended"}}, "Suspended customer@else.example."},
		{"/suspend", url.Values{"status": {"active"}}, "Ended the suspension of customer@else.example."},
		{"/link", nil, "Sent an invitation to customer@else.example, as an owner of the account."},
	} {
		if status, to, text := v.ask("POST", path+c.path, c.form); status != 303 {
			t.Fatalf("%s: %d %s\n%s", c.path, status, to, text)
		}
		for of, actor := range map[db.ID]string{account.OperatorAccount: audit.ActorUser, made.ID: audit.ActorOperator} {
			list, _, err := s.Audit.List(t.Context(), of, db.Page{Limit: 1})
			if err != nil || len(list) != 1 || list[0].Description != c.told || list[0].Actor.Kind != actor || list[0].Object != made.ID.String() {
				t.Errorf("%s: the activity of %s is %+v, %v", c.path, of, list, err)
			}
		}
	}
}

// The pages of a suspended account show nothing to its members.
func TestSuspendedAccount(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Accounts.SetStatus(t.Context(), demo.ID, account.StatusSuspended); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/domains": 403, "/": 403, "/profile": 200} {
		if status, _, text := v.ask("GET", path, nil); status != want {
			t.Errorf("%s: %d\n%s", path, status, text)
		}
	}
	if status, _, _ := v.ask("POST", "/domains", url.Values{"name": {"more.example"}}); status != 403 {
		t.Errorf("it adds a domain: %d", status)
	}
	// The user can still join another account.
	other, err := s.Accounts.Create(t.Context(), "other@else.example", "Else")
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.CreateInviteLink(t.Context(), other.ID, s.Dev.Dashboard.Email, user.RoleMember, false)
	if err != nil {
		t.Fatal(err)
	}
	if status, to, text := v.ask("POST", "/join/"+token+"/accept", nil); status != 303 || to != "/" {
		t.Errorf("joining another: %d %s\n%s", status, to, text)
	}
	if status, _, text := v.ask("GET", "/domains", nil); status != 200 {
		t.Errorf("the other: %d\n%s", status, text)
	}
	// The joined account's activity has an entry; that of the suspended account, which was open,
	// doesn't.
	for id, want := range map[db.ID]bool{demo.ID: false, other.ID: true} {
		entries, _, err := s.Audit.List(t.Context(), id, db.Page{Limit: 1})
		if err != nil || (len(entries) > 0 && entries[0].Description == "Joined the account.") != want {
			t.Errorf("the activity of %s begins with %v %v", id, entries, err)
		}
	}
}

// Only operators see these pages, regardless of the role that others have in their account.
func TestOnlyOperators(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password) // opens a customer's account
	seen := 0
	for _, r := range s.Dashboard.Routes() {
		if !strings.HasPrefix(r.Path, "/operator") {
			continue
		}
		seen++
		path := strings.ReplaceAll(r.Path, "{id}", account.OperatorAccount.String())
		if status, _, _ := v.ask(r.Method, path, url.Values{"destination": {"x.example"}}); status != 404 {
			t.Errorf("%s %s: %d", r.Method, path, status)
		}
	}
	if seen == 0 {
		t.Error("there are no such pages")
	}
}
