// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// visitor is a browser without scripts.
type visitor struct {
	t    *testing.T
	base string
	http http.Client
}

func newVisitor(t *testing.T, s *servertest.Server) *visitor {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t, s.Dev.BaseURL, http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// ask makes a request and returns its status, its redirect target and its page.
func (v *visitor) ask(method, path string, form url.Values, header ...string) (status int, to, text string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := v.http.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Location"), string(body)
}

func (v *visitor) signIn(email, password string) {
	v.t.Helper()
	if status, to, text := v.ask("POST", "/sign-in", url.Values{"email": {email}, "password": {password}}); status != 303 || to != "/" {
		v.t.Fatalf("%d %s\n%s", status, to, text)
	}
}

const colleague = "Correct-Horse-7"

// Every route, as a stranger and as a user of another account: no data is shown, and nothing is
// changed. The test covers new routes through the route list.
func TestClients(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	acc, err := s.Accounts.Create(t.Context(), "stranger@else.example", "Else")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "stranger@else.example", Name: "Mallory", Password: colleague}, acc.ID); err != nil {
		t.Fatal(err)
	}
	nobody, stranger := newVisitor(t, s), newVisitor(t, s)
	stranger.signIn("stranger@else.example", colleague)
	members, err := s.Users.Members(t.Context(), demo.ID)
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]db.ID{"/domains": s.Dev.Domain.ID, "/mailboxes": s.Dev.Mailboxes[0].ID, "/people": members[0].ID, "/profile": demo.ID}
	for _, r := range s.Dashboard.Routes() {
		path := r.Path
		for prefix, id := range theirs {
			if strings.HasPrefix(path, prefix) {
				path = strings.ReplaceAll(path, "{id}", id.String())
			}
		}
		path = strings.TrimSuffix(strings.NewReplacer("{id}", demo.ID.String(), "{$}", "", "{token}", "mst_aaaa").Replace(path), "{$}")
		if r.RequiresSignIn {
			if status, to, _ := nobody.ask(r.Method, path, nil); (status != 303 || !strings.HasPrefix(to, "/sign-in")) && (status != 401 || r.Method != "POST") {
				t.Errorf("%s %s shows a stranger %d, %s", r.Method, path, status, to)
			}
		}
		if path == r.Path || !r.RequiresSignIn || strings.HasPrefix(r.Path, "/join/") || strings.HasSuffix(r.Path, "/sessions/{id}/end") {
			continue // shows no account's data, or reports success where there was nothing to do
		}
		if path == "/" {
			continue
		}
		if status, _, text := stranger.ask(r.Method, path, url.Values{"role": {"owner"}, "days": {"30"}}); status != 404 && status != 409 || strings.Contains(text, "demo.test") {
			t.Errorf("%s %s shows somebody of another account %d\n%s", r.Method, path, status, text)
		}
	}
	if after, err := s.Users.Members(t.Context(), demo.ID); err != nil || len(after) != len(members) {
		t.Error("a stranger changed who belongs to the account", err)
	}
}

// The browser keeps a form whose session has ended. After signing in in another tab, the user can
// send it again.
func TestFormOfEndedSession(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	who, err := s.Users.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	b.open("/domains")
	b.fill("name", "typed.example")
	if err := s.Users.SignOutOthers(t.Context(), who.ID, 0); err != nil {
		t.Fatal(err)
	}
	b.press("/domains")
	b.reads("You are not signed in any more")
	b.accessible()
	script[bool](b, fmt.Sprintf(`fetch("/sign-in", {method: "POST", body: new URLSearchParams({email: %q, password: %q})}).then((a) => a.ok)`, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password))
	script[string](b, `document.documentElement.dataset.before = "yes"`)
	b.do(chromedp.Reload(), ready(`html:not([data-before]) main`))
	b.reads("Added the domain typed.example.")
}

// A page with a form error has a working address: the user can switch its theme and reload the
// address.
func TestAddressOfForm(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	box, id := "/mailboxes/"+s.Dev.Mailboxes[0].ID.String(), s.Dev.Domain.ID.String()
	status, _, text := v.ask("POST", box+"/vacation", url.Values{"enabled": {"yes"}})
	if status != 422 || !strings.Contains(text, `name="to" value="`+box+`/vacation"`) {
		t.Fatalf("%d\n%s", status, text)
	}
	for path, page := range map[string]string{
		box + "/vacation": box, box + "/import": box, box + "/setup/check": box + "/setup", "/people/" + id + "/role": "/people", "/people/invitations/" + id + "/withdraw": "/people",
		"/suppressions/import": "/suppressions", "/sandbox/receive": "/sandbox", "/templates/preview": "/templates", "/mailbox/vacation": "/mailbox", "/sign-out": "/",
	} {
		if status, to, _ := v.ask("GET", path, nil); status != 303 || to != page {
			t.Errorf("%s: %d %s, want %s", path, status, to, page)
		}
	}
}

// Roles are enforced: readers change nothing, and members change nothing about people.
func TestRoles(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	for role, may := range map[user.Role]struct{ add, invite int }{user.RoleReader: {403, 403}, user.RoleMember: {303, 403}, user.RoleOwner: {303, 303}} {
		email := string(role) + "@demo.test"
		token, err := s.Users.CreateInviteLink(t.Context(), demo.ID, email, role, false)
		if err != nil {
			t.Fatal(err)
		}
		v := newVisitor(t, s)
		if status, to, text := v.ask("POST", "/join/"+token, url.Values{"name": {"N"}, "password": {colleague}}); status != 303 || to != "/" {
			t.Fatalf("%d %s\n%s", status, to, text)
		}
		if status, _, text := v.ask("GET", "/domains", nil); status != 200 || !strings.Contains(text, "demo.test") {
			t.Errorf("%s does not see the domains: %d", role, status)
		}
		if status, _, text := v.ask("POST", "/domains", url.Values{"name": {string(role) + ".example"}}); status != may.add {
			t.Errorf("%s adds a domain: %d\n%s", role, status, text)
		}
		for path, form := range map[string]url.Values{
			"/domains/" + s.Dev.Domain.ID.String() + "/arriving":     {"dmarc_enforcement": {"enforce"}, "spam_filtering": {"junk"}, "mta_sts": {"none"}},
			"/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/spam": {"spam_filter": {"strict"}},
		} {
			if status, _, text := v.ask("POST", path, form); status != may.add {
				t.Errorf("%s changes %s: %d\n%s", role, path, status, text)
			}
		}
		if _, _, text := v.ask("GET", "/domains/"+s.Dev.Domain.ID.String(), nil); !strings.Contains(text, "author’s DMARC policy") {
			t.Errorf("%s does not read what is done with arriving mail:\n%s", role, text)
		}
		if status, _, text := v.ask("POST", "/people", url.Values{"email": {"new-" + email}, "role": {"owner"}}); status != may.invite {
			t.Errorf("%s invites: %d\n%s", role, status, text)
		}
		setup := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/setup"
		for path, want := range map[string]int{"/migrations/test": 422, "/migrations": 422, "/migrations/many": 422, setup + "/profile": 422, setup + "/link": 422} {
			if may.add == 403 {
				want = 403
			}
			if status, _, _ := v.ask("POST", path, nil); status != want {
				t.Errorf("%s at %s: %d", role, path, status)
			}
		}
		if status, _, _ := v.ask("POST", "/profile/accounts/"+account.OperatorAccount.String(), nil); status != 404 {
			t.Errorf("%s becomes an operator: %d", role, status)
		}
	}
}

// Cross-site requests change nothing, and no redirect leads to another site.
func TestOtherSites(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	host := strings.TrimPrefix(s.Dev.BaseURL, "http://")
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
		{"Origin", "https://" + host}, {"Origin", "http://127.0.0.1"}, {"Origin", "http://127.0.0.1:1"}, {"Origin", "http://" + host + ".evil.example"},
	} {
		if status, _, _ := v.ask("POST", "/domains", url.Values{"name": {"csrf.example"}}, header...); status != 403 {
			t.Errorf("%v: %d", header, status)
		}
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin", "Origin", "null"}, {"Sec-Fetch-Site", "none"}, {"Origin", s.Dev.BaseURL}, nil} {
		if status, _, _ := v.ask("POST", "/theme", url.Values{"theme": {"dark"}}, header...); status != 303 {
			t.Errorf("%v: %d", header, status)
		}
	}
	for _, to := range []string{"https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"} {
		if _, at, _ := v.ask("GET", "/sign-in?"+url.Values{"to": {to}}.Encode(), nil); at != "/" {
			t.Errorf("signed in, %q leads to %q", to, at)
		}
		if _, at, _ := v.ask("POST", "/theme", url.Values{"to": {to}, "theme": {"dark"}}); at != "/" {
			t.Errorf("%q leads to %q", to, at)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.Dev.BaseURL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := v.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if csp := res.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
		t.Error(csp)
	}
	for _, c := range v.http.Jar.Cookies(req.URL) {
		if c.Name == "told" {
			t.Error("what was told before is kept")
		}
	}
	if status, _, _ := v.ask("POST", "/domains", url.Values{"name": {strings.Repeat("x", 8<<20)}}); status != 413 {
		t.Errorf("a form of 8 MB: %d", status)
	}
}

// A user who submits the second factor too late is sent to the sign-in page; one who submits it
// twice is signed in.
func TestCodeAtNoTime(t *testing.T) {
	s := servertest.Start(t)
	nobody, in := newVisitor(t, s), newVisitor(t, s)
	in.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	form := url.Values{"code": {"123456"}, "to": {"/domains"}}
	for who, v := range map[string]*visitor{"nobody": nobody, "who is in": in} {
		for _, method := range []string{"GET", "POST"} {
			if status, to, text := v.ask(method, "/sign-in/code?to=%2Fdomains", form); status != 303 || to != "/sign-in?to=%2Fdomains" {
				t.Errorf("%s by %s: %d %s\n%s", who, method, status, to, text)
			}
		}
	}
	if status, to, _ := in.ask("GET", "/sign-in?to=%2Fdomains", nil); status != 303 || to != "/domains" {
		t.Errorf("who is in is led to %d %s", status, to)
	}
	if _, _, text := nobody.ask("GET", "/sign-in?to=%2Fdomains", nil); !strings.Contains(text, "Sign in once more.") {
		t.Errorf("who is too late reads\n%s", text)
	}
}

// Withdrawing an invitation that was accepted in the meantime reports that the person has joined.
func TestWithdrawTooLate(t *testing.T) {
	s := servertest.Start(t)
	owner, guest := newVisitor(t, s), newVisitor(t, s)
	owner.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	if status, _, text := owner.ask("POST", "/people", url.Values{"email": {"guest@else.example"}, "role": {"owner"}}); status != 303 || strings.Contains(text, "/join/") {
		t.Fatalf("%d\n%s", status, text)
	}
	link := link(t, mailed(t, s, "guest@else.example", 1))
	_, _, text := owner.ask("GET", "/people", nil)
	withdraw := regexp.MustCompile(`/people/invitations/[^/]+/withdraw`).FindString(text)
	if status, _, text := guest.ask("POST", link, url.Values{"name": {"Guest"}, "password": {colleague}}); status != 303 {
		t.Fatalf("%s: %d\n%s", link, status, text)
	}
	if status, _, text := owner.ask("POST", withdraw, nil); status != 409 || !strings.Contains(text, "was accepted") || !strings.Contains(text, "guest@else.example") {
		t.Errorf("%s: %d\n%s", withdraw, status, text)
	}
	if _, _, text := owner.ask("GET", "/activity", nil); strings.Contains(text, "Withdrew") {
		t.Error("the activity tells of what was not done")
	}
}

// A user can join from a network that is blocked for wrong passwords, and sees that joining
// succeeded.
func TestJoinAmongGuesses(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.CreateInviteLink(t.Context(), demo.ID, "guest@else.example", user.RoleReader, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Dashboard.Unfriend()
	s.Users.Logins.Sleep = func(context.Context, time.Duration) error { return nil }
	for n := range 10 {
		if _, _, err := s.Users.SignIn(t.Context(), "guest@else.example", fmt.Sprint("Wrong-Horse-", n), here, ""); !fault.Is(err, fault.Unauthenticated) {
			t.Fatal(err)
		}
	}
	v := newVisitor(t, s)
	if status, to, text := v.ask("POST", "/join/"+token, url.Values{"name": {"Guest"}, "password": {colleague}}); status != 303 || to != "/sign-in" {
		t.Fatalf("%d %s\n%s", status, to, text)
	}
	if _, _, text := v.ask("GET", "/sign-in", nil); !strings.Contains(text, "You have joined.") {
		t.Error("nothing is said:", text)
	}
}
