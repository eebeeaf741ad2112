// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	inProfile = regexp.MustCompile(`<key>IncomingPassword</key>\s*<string>([^<]+)</string>`)
	onceLink  = regexp.MustCompile(`/phone/once/mpl_[a-z0-9]+`)
)

// A profile with an app password can be created only by users who may create app passwords. No
// other page shows the password. The link works for the first request only.
func TestProfileWithPassword(t *testing.T) {
	s := servertest.Start(t)
	alice := s.Dev.Mailboxes[0]
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	opens := func(profile string) bool {
		t.Helper()
		found := inProfile.FindStringSubmatch(profile)
		if found == nil {
			t.Fatal("there is no password in", profile)
		}
		_, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, alice.Address, found[1], here)
		return err == nil
	}
	setup := "/mailboxes/" + alice.ID.String() + "/setup"
	owner := newVisitor(t, s)
	if status, _, text := owner.ask("POST", "/mailbox/sign-in", url.Values{"address": {alice.Address}, "password": {alice.Password}}); status != 303 {
		t.Fatal(status, text)
	}
	for path, who := range map[string]*visitor{setup: v, "/mailbox": owner} {
		status, _, profile := who.ask("POST", path+"/profile", url.Values{"name": {"Mac of " + path}})
		if status != 200 || !opens(profile) {
			t.Errorf("%s: %d\n%s", path, status, profile)
		}
		if status, _, text := who.ask("POST", path+"/profile", nil); status != 422 || !strings.Contains(text, "Give a name") {
			t.Errorf("%s without a name: %d", path, status)
		}
		status, _, shown := who.ask("POST", path+"/link", url.Values{"name": {"Phone of " + path}})
		link := onceLink.FindString(shown)
		if status != 200 || link == "" {
			t.Fatalf("%s: %d\n%s", path, status, shown)
		}
		phone := newVisitor(t, s)
		for range 2 {
			if status, _, text := phone.ask("GET", link, nil); status != 200 || !strings.Contains(text, "Phone of "+path) {
				t.Errorf("looking at the link: %d\n%s", status, text)
			}
		}
		if status, _, profile := phone.ask("POST", link, nil); status != 200 || !opens(profile) {
			t.Errorf("following the link: %d\n%s", status, profile)
		}
		for _, method := range []string{"GET", "POST"} {
			if status, _, text := phone.ask(method, link, nil); status != 404 || !strings.Contains(text, "This link works once") {
				t.Errorf("%s of a spent link: %d\n%s", method, status, text)
			}
		}
	}
	_, _, text := v.ask("GET", "/mailboxes/"+alice.ID.String()+"/access", nil)
	for _, name := range []string{"Mac of " + setup, "Phone of " + setup, "Mac of /mailbox", "Phone of /mailbox"} {
		if !strings.Contains(text, name) {
			t.Errorf("%s is not listed", name)
		}
	}
	_, _, text = v.ask("GET", "/activity", nil)
	for _, what := range []string{"Made a profile of alice@demo.test with an app password for Mac of /mailbox.", "Made a profile of alice@demo.test", "Made a link to a profile of alice@demo.test", "Took the profile of alice@demo.test"} {
		if !strings.Contains(text, what) {
			t.Errorf("the activity does not say: %s", what)
		}
	}
	nobody := newVisitor(t, s)
	for _, path := range []string{"/mailbox/profile", "/mailbox/link"} {
		if status, _, text := nobody.ask("POST", path, url.Values{"name": {"x"}}); status != 401 || !strings.Contains(text, `href="/mailbox"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

func TestPhonePages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	path := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/setup"
	b.open(path)
	script[string](b, `document.querySelector("#phone ~ details").open = true; ""`)
	b.fill("name", "Ann’s iPhone")
	b.press(path + "/profile") // the first button belongs to the QR code
	b.reads("The link works once")
	b.looks("phone-link")
	b.open(onceLink.FindString(b.text()))
	b.reads("Get the profile")
	b.looks("phone-once")
	b.open("/phone/once/mpl_none")
	b.reads("This link works once")
	b.accessible()
}
