// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

const victim = "victim@outside.test"

// attacker returns the owner of another account whose suppression list has the victim.
func attacker(t *testing.T, s *servertest.Server) (*visitor, user.Membership) {
	t.Helper()
	acc, err := s.Accounts.Create(t.Context(), "mallory@elsewhere.test", "Mallory Ltd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "mallory@elsewhere.test", Name: "Mallory", Password: colleague}, acc.ID); err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, s)
	v.signIn("mallory@elsewhere.test", colleague)
	if status, _, text := v.ask("POST", "/suppressions", url.Values{"addresses": {victim}, "reason": {"manual"}}); status != 303 {
		t.Fatalf("%d\n%s", status, text)
	}
	return v, user.Membership{Account: acc.ID, Role: user.RoleOwner}
}

// An inviter does not see the link with which the address's owner accepts the invitation.
func TestInviterSeesNoLink(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		mallory, _ := attacker(t, s)
		status, to, text := mallory.ask("POST", "/people", url.Values{"email": {victim}, "role": {"owner"}})
		if status != 303 || to != "/people" {
			t.Errorf("%d %s\n%s", status, to, text)
		}
		for _, path := range []string{"", "/people", "/activity", "/messages", "/sandbox"} {
			if path != "" {
				_, _, text = mallory.ask("GET", path, nil)
			}
			if strings.Contains(text, "mst_") || strings.Contains(text, "/join/") {
				t.Fatalf("%s shows the link:\n%s", path, text)
			}
		}
		link := link(t, mailed(t, s, victim, 1))
		// The page behind the link doesn't leak it and can be opened repeatedly.
		for range 2 {
			req, err := http.NewRequestWithContext(t.Context(), "GET", s.Dev.BaseURL+link, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != 200 || res.Header.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
		}
		// The invitation ends when its owner is removed, however new its link is.
		other, err := s.Users.Create(t.Context(), user.CreateParams{Email: "partner@elsewhere.test", Name: "Partner", Password: colleague})
		if err != nil {
			t.Fatal(err)
		}
		acc, err := s.Accounts.ByEmail(t.Context(), "mallory@elsewhere.test")
		if err != nil {
			t.Fatal(err)
		}
		token, err := s.Users.CreateInviteLink(t.Context(), acc.ID, other.Email, user.RoleOwner, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users.AcceptInvitation(t.Context(), token, other); err != nil {
			t.Fatal(err)
		}
		partner := newVisitor(t, s)
		partner.signIn(other.Email, colleague)
		evil, err := s.Users.ByEmail(t.Context(), "mallory@elsewhere.test")
		if err != nil {
			t.Fatal(err)
		}
		if status, _, text := partner.ask("POST", "/people/"+evil.ID.String()+"/role", url.Values{"role": {"reader"}}); status != 303 {
			t.Fatalf("%d\n%s", status, text)
		}
		if status, _, text := newVisitor(t, s).ask("POST", link, url.Values{"name": {"V"}, "password": {colleague}}); status != 404 {
			t.Errorf("the invitation of a former owner: %d\n%s", status, text)
		}
	})
}

// A user who signed up with somebody else's address can't block it. The address's real owner joins
// another account, chooses a password, and shares nothing with that user.
func TestTakenAddressIsFree(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		_, theirs := attacker(t, s)
		token, err := s.Users.CreateInviteLink(t.Context(), theirs.Account, victim, user.RoleOwner, false)
		if err != nil {
			t.Fatal(err)
		}
		squatter := newVisitor(t, s)
		if status, to, text := squatter.ask("POST", "/join/"+token, url.Values{"name": {"M"}, "password": {colleague}}); status != 303 || to != "/" {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		// Opening the confirmation link in another browser confirms nothing.
		confirm := link(t, mailed(t, s, victim, 1))
		if status, _, text := newVisitor(t, s).ask("GET", confirm, nil); status != 200 || !strings.Contains(text, "/sign-in?to=") || strings.Contains(text, "Confirm the address</button>") {
			t.Errorf("%d\n%s", status, text)
		}
		if status, _, _ := newVisitor(t, s).ask("POST", confirm, nil); status != 401 {
			t.Errorf("nobody confirms: %d", status)
		}

		owner := newVisitor(t, s)
		owner.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		if status, _, text := owner.ask("POST", "/people", url.Values{"email": {victim}, "role": {"reader"}}); status != 303 {
			t.Fatalf("%d\n%s", status, text)
		}
		join := link(t, mailed(t, s, victim, 2))
		v := newVisitor(t, s)
		keep := "keep-" + theirs.Account.String()
		if status, _, text := v.ask("GET", join, nil); status != 200 || !strings.Contains(text, "Mallory Ltd") || !strings.Contains(text, keep) {
			t.Errorf("nothing is said of the other account: %d\n%s", status, text)
		}
		form := url.Values{"name": {"Victim"}, "password": {colleague + " mine"}}
		if status, _, text := v.ask("POST", join, form); status != 422 || !strings.Contains(text, "whether you keep it") {
			t.Fatalf("nothing is asked: %d\n%s", status, text)
		}
		form.Set(keep, "no")
		if status, to, text := v.ask("POST", join, form); status != 303 || to != "/" {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		if status, _, text := v.ask("GET", "/domains", nil); status != 200 || !strings.Contains(text, "demo.test") {
			t.Errorf("%d\n%s", status, text)
		}
		if _, _, text := v.ask("GET", "/profile", nil); strings.Contains(text, "Mallory Ltd") || strings.Contains(text, "not confirmed") {
			t.Errorf("the profile:\n%s", text)
		}
		if status, to, _ := squatter.ask("GET", "/people", nil); status != 303 || to != "/sign-in?to=%2Fpeople" {
			t.Errorf("the squatter is still in: %d %s", status, to)
		}
		if status, _, _ := squatter.ask("POST", "/sign-in", url.Values{"email": {victim}, "password": {colleague}}); status != 401 {
			t.Errorf("the squatter signs in: %d", status)
		}
		if status, _, text := newVisitor(t, s).ask("POST", "/forgotten", url.Values{"email": {victim}}); status != 200 {
			t.Fatalf("%d\n%s", status, text)
		}
		reset := link(t, mailed(t, s, victim, 3))
		if status, to, text := newVisitor(t, s).ask("POST", reset, url.Values{"password": {colleague + " new"}}); status != 303 || to != "/sign-in" {
			t.Errorf("%d %s\n%s", status, to, text)
		}
		v.signIn(victim, colleague+" new")

		// A user with a confirmed address joins further accounts by signing in.
		third, err := s.Accounts.Create(t.Context(), "third@elsewhere.test", "Third Ltd")
		if err != nil {
			t.Fatal(err)
		}
		if token, err = s.Users.CreateInviteLink(t.Context(), third.ID, victim, user.RoleReader, true); err != nil {
			t.Fatal(err)
		}
		again := newVisitor(t, s)
		_, _, text := again.ask("GET", "/join/"+token, nil)
		to := regexp.MustCompile(`href="(/sign-in\?to=[^"]+)"`).FindStringSubmatch(text)
		if to == nil || strings.Contains(text, keep) {
			t.Fatal(text)
		}
		at, err := url.Parse(html.UnescapeString(to[1]))
		if err != nil {
			t.Fatal(err)
		}
		if status, to, text := again.ask("POST", "/sign-in", url.Values{"email": {victim}, "password": {colleague + " new"}, "to": {at.Query().Get("to")}}); status != 303 || to != "/join/"+token {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		if status, to, text := again.ask("POST", "/join/"+token+"/accept", nil); status != 303 || to != "/" {
			t.Errorf("%d %s\n%s", status, to, text)
		}
	})
}
