// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// becomes waits until the page has a text, without reloading it.
func (b *browser) becomes(want string) {
	b.t.Helper()
	script[bool](b, fmt.Sprintf(`new Promise(done => {
		const want = %q.toLowerCase(), look = () => document.body.innerText.toLowerCase().includes(want);
		if (look()) return done(true);
		new MutationObserver((_, o) => { if (look()) { o.disconnect(); done(true); } }).observe(document.body, {childList: true, subtree: true, characterData: true});
	})`, want))
}

// stow appends messages to folders of a mailbox over IMAP.
func stow(t *testing.T, s *servertest.Server, box int, folders map[string]int) {
	t.Helper()
	c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over with it
	if err := c.Login(s.Dev.Mailboxes[box].Address, s.Dev.Mailboxes[box].Password).Wait(); err != nil {
		t.Fatal(err)
	}
	for name, n := range folders {
		if name != "INBOX" {
			if err := c.Create(name, nil).Wait(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			text := fmt.Sprintf("From: ann@example.org\r\nSubject: Kept %d\r\nMessage-ID: <%d.%d@example.org>\r\n\r\nHello.\r\n", i, i, len(name))
			cmd := c.Append(name, int64(len(text)), nil)
			if _, err := cmd.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A mailbox is migrated from another server, and the page shows the progress.
func TestMigrationPages(t *testing.T) {
	const evil = `<img id=evil src=x onerror="window.evil=1"><script id=evil>window.evil=1`
	s := servertest.Start(t)
	stow(t, s, 0, map[string]int{"INBOX": 12, "Work": 7, evil: 2})
	b := browse(t, s)
	b.signIn(s)
	from, to := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	b.open("/mailboxes")
	b.reads("Moving in?")
	b.open("/migrations")
	b.reads("Moving in?")
	b.looks("migrations-empty")

	b.open("/migrations/new")
	b.fill("mailbox", "nobody@demo.test")
	b.fill("host", "no host")
	b.fill("username", from.Address)
	b.fill("password", from.Password)
	b.press("/migrations")
	b.reads("no mailbox of yours")
	b.reads("Give a host name")
	b.accessible()
	b.fill("mailbox", to.Address)
	b.fill("host", "localhost")
	b.fill("port", strconv.Itoa(s.Dev.Ports["imaps"]))
	b.fill("password", from.Password)

	try := func(want string) {
		t.Helper()
		script[string](b, `document.querySelector('[formaction="/migrations/test"]').click(); ""`)
		b.becomes(want)
		if got := script[string](b, `document.querySelector("[name=password]").value`); got != from.Password {
			t.Error("the password has to be entered again")
		}
	}
	try("Tick “Accept any certificate”")
	b.accessible()
	b.tick("insecure", "yes")
	try("folders with 21 messages")
	b.looks("migration-new")
	b.tick("folders", "Work")
	b.press("/migrations")
	b.reads("Began to copy")
	b.becomes("All is copied")
	b.reads("14")
	if b.text(); script[bool](b, `!!(window.evil || document.querySelector("#evil"))`) {
		t.Error("a folder's name is more than text")
	}
	if strings.Contains(script[string](b, `document.documentElement.outerHTML`), from.Password) {
		t.Error("the page has the password")
	}
	b.looks("migration")
	path := b.path()

	stow(t, s, 0, map[string]int{"Later": 3})
	b.open(script[string](b, `document.querySelector('a[href*="again="]').getAttribute("href")`))
	b.reads("What was copied before")
	b.accessible()
	b.open("/migrations/many")
	b.fill("host", "localhost")
	b.fill("port", strconv.Itoa(s.Dev.Ports["imaps"]))
	b.tick("insecure", "yes")
	lines := func(text, want string) {
		t.Helper()
		b.fill("lines", text)
		script[string](b, `document.querySelector('form[action="/migrations/many"] button').click(); ""`)
		b.becomes(want)
	}
	lines("ann@old.example,Secret-1,nobody@demo.test", "Line 1: the mailbox here is none of yours.")
	lines(to.Address+",\"open", "Line 1: a quotation mark")
	b.accessible()
	if got := script[string](b, `document.querySelector("[name=lines]").value`); got != to.Address+",\"open" {
		t.Errorf("the lines have to be entered again: %s", got)
	}
	b.looks("migration-many")
	b.fill("lines", from.Address+","+from.Password+","+to.Address+"\n"+to.Address+","+to.Password+"\n")
	b.press("/migrations/many")
	b.reads("Began to copy 2 mailboxes")
	b.becomes("completed")
	b.open("/migrations")
	b.looks("migrations")
	b.open("/activity")
	b.reads("Began to copy " + from.Address + " at localhost into " + to.Address + ".")

	x := newStranger(t, s)
	x.findsNothing("GET "+path, "GET "+path+"/progress", "POST "+path+"/cancel", "GET /migrations/new?again="+strings.TrimPrefix(path, "/migrations/"), "GET /migrations/new?mailbox="+to.ID.String())
}

// The source test works without scripts, too, and connects only to addresses that the operator
// allows.
func TestMigrationForm(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	box := s.Dev.Mailboxes[0]
	form := url.Values{"mailbox": {box.Address}, "host": {"localhost"}, "port": {strconv.Itoa(s.Dev.Ports["imaps"])}, "tls": {"implicit"}, "insecure": {"yes"}, "username": {box.Address}, "password": {box.Password}}
	for _, c := range []struct{ field, value, says string }{
		{"", "", "It works"}, {"password", "Wr0ng-Password", "refuses the user name and the password"}, {"host", "10.11.12.13", "no address on the public Internet"},
		{"host", "none.example", "w-host"}, {"port", "0", "A port is a number"}, {"port", "many", "A port is a number"}, {"tls", "some", "Give implicit"}, {"username", "", "The user name at the source"},
	} {
		sent := url.Values{}
		for k, values := range form {
			sent[k] = values
		}
		if c.field != "" {
			sent.Set(c.field, c.value)
		}
		status, _, text := v.ask("POST", "/migrations/test", sent)
		if want := map[bool]int{true: 200, false: 422}[c.field == ""]; status != want || !strings.Contains(text, c.says) || !strings.Contains(text, "<!doctype html>") {
			t.Errorf("%s=%s: %d\n%s", c.field, c.value, status, text)
		}
		if p := sent.Get("password"); p != "" && strings.Contains(text, p) {
			t.Errorf("%s=%s: the answer has the password", c.field, c.value)
		}
	}
	form.Set("lines", "a,Sec-ret-12\n")
	if status, _, text := v.ask("POST", "/migrations/many", form); status != 422 || strings.Contains(text, "Sec-ret-12") {
		t.Errorf("many: %d\n%s", status, text)
	}
	form["folder"] = []string{"1 2 3 INBOX"}
	if status, _, text := v.ask("POST", "/migrations", form); status != 422 || !strings.Contains(text, "Tick at least one folder.") {
		t.Errorf("no folder: %d\n%s", status, text)
	}
}
