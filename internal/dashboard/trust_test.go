// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/dashboard"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// hidden is in the text of every message of places, and nowhere else.
const hidden = "tell-nobody-of-this"

// places has an object for every wildcard in a path, and fills paths in.
type places struct {
	t   *testing.T
	ids map[string]string // by the prefix of a route
	box string
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

func placesOf(t *testing.T, s *servertest.Server) *places {
	t.Helper()
	alice := s.Dev.Mailboxes[0]
	id := func(path string, body object) string { return callAPI(t, s, "POST", path, body)["id"].(string) }
	got := callAPI(t, s, "POST", "/sandbox/inbound", object{"from": "bob@outside.test", "to": []string{alice.Address}, "subject": "Hello", "text": hidden, "html": "<p>" + hidden + "</p>",
		"attachments": []object{{"filename": "a.txt", "content": "dGVsbC1ub2JvZHktb2YtdGhpcw=="}}})["recipients"].([]any)[0].(object)
	sent := id("/outbound/send", sendRequest(object{"to": []string{"somebody@elsewhere.example"}, "text": hidden, "html": "<p>" + hidden + "</p>", "thread_id": "deal",
		"attachments": []object{{"filename": "a.txt", "content": "dGVsbC1ub2JvZHktb2YtdGhpcw=="}}}))
	settles(t, s, sent, "delivered")
	hook := id("/webhooks", object{"url": "http://127.0.0.1:19999/", "events": []string{"all"}})
	caught := callAPI(t, s, "GET", "/sandbox/outbox", nil)["data"].([]any)[0].(object)["id"].(string)
	callAPI(t, s, "POST", "/webhooks/"+hook+"/replay?created_after=2026-01-01T00:00:00Z", nil)
	var delivery string
	servertest.Eventually(t, func() string {
		for _, d := range callAPI(t, s, "GET", "/webhooks/"+hook+"/deliveries", nil)["data"].([]any) {
			if one := d.(object); one["type"] == "inbound_email" {
				delivery = one["id"].(string)
				return ""
			}
		}
		return "the webhook has no delivery of the message"
	})
	members, err := s.Users.Members(t.Context(), accountOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return &places{t, map[string]string{
		"/domains": s.Dev.Domain.ID.String(), "/mailboxes": alice.ID.String(), "/aliases": id("/aliases", object{"address": "info@demo.test", "targets": []string{alice.Address}}),
		"/messages": sent, "/received": got["id"].(string), "/threads": "deal", "/sandbox": caught, "/webhooks": hook, "delivery": delivery,
		"/templates": id("/templates", object{"name": "Paid", "subject": "Paid", "text": "Thanks"}),
		"/migrations": id("/migrations", object{"mailbox_id": s.Dev.Mailboxes[1].ID.String(), "source": object{"host": "localhost", "port": s.Dev.Ports["imaps"], "username": alice.Address,
			"password": alice.Password, "insecure_skip_verify": true}}),
		"/people": members[0].ID.String(), "/keys": id("/api-keys", object{"name": "one"}),
		"/suppressions": id("/suppressions", object{"email": "no@far.example"}), "/operator": accountOf(t, s).String(),
		"/profile": accountOf(t, s).String(), "/join": "mst_aaaa", "/reset": "mst_aaaa", "/confirm": "mst_aaaa", "/phone": "mst_aaaa", "/mailbox": alice.ID.String(), "/docs": "quickstart",
	}, alice.ID.String()}
}

func accountOf(t *testing.T, s *servertest.Server) db.ID {
	t.Helper()
	acc, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	return acc.ID
}

// path fills in the wildcards of a route.
func (p *places) path(route string) string {
	p.t.Helper()
	first := "/" + strings.Split(route, "/")[1]
	return wildcard.ReplaceAllStringFunc(route, func(name string) string {
		switch name {
		case "{$}":
			return ""
		case "{box}":
			return p.box
		case "{n}":
			if strings.HasPrefix(route, "/templates") {
				return "1"
			}
			return "0"
		case "{delivery}":
			return p.ids["delivery"]
		case "{id}", "{id...}", "{token}", "{ticket}", "{app}", "{guide}", "{resource}":
			if p.ids[first] == "" {
				p.t.Fatalf("say what %s of %s is", name, route)
			}
			return p.ids[first]
		}
		p.t.Fatalf("say what %s of %s is", name, route)
		return ""
	})
}

// member creates a user with a role and signs in.
func member(t *testing.T, s *servertest.Server, name string, role user.Role, mail bool) *visitor {
	t.Helper()
	acc, email := accountOf(t, s), name+"@people.example"
	who, err := s.Users.Create(t.Context(), user.CreateParams{Email: email, Name: name, Password: colleague}, acc)
	if err == nil && role != user.RoleOwner {
		err = s.Users.SetRole(t.Context(), acc, who.ID, role)
	}
	if err == nil && role != user.RoleOwner {
		err = s.Users.SetReadsMail(t.Context(), acc, who.ID, mail)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, s)
	v.signIn(email, colleague)
	return v
}

// Each role, with and without the right to read mail, requests every page and file. Users without
// the right see no message text; users with it do. The test covers new routes through the route
// list.
func TestReadingMail(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := placesOf(t, s)
		people := []struct {
			name string
			role user.Role
			mail bool // whether the right was granted
			may  bool
		}{
			{"reader", user.RoleReader, false, false}, {"reader-of-mail", user.RoleReader, true, true},
			{"worker", user.RoleMember, false, false}, {"worker-of-mail", user.RoleMember, true, true}, {"owner", user.RoleOwner, false, true},
		}
		for _, who := range people {
			v := member(t, s, who.name, who.role, who.mail)
			var shows []string
			for _, r := range s.Dashboard.Routes() {
				if r.Method != "GET" || !r.RequiresSignIn {
					continue
				}
				path := p.path(r.Path)
				status, _, text := v.ask("GET", path, nil)
				told := strings.Contains(text, hidden) || strings.Contains(text, "dGVsbC1ub2JvZHktb2YtdGhpcw")
				if told {
					shows = append(shows, r.Path)
				}
				switch {
				case told && !who.may:
					t.Errorf("%s sees mail at %s", who.name, path)
				case r.RequiresMailAccess && !who.may && status != 403:
					t.Errorf("%s gets %d from %s", who.name, status, path)
				case r.RequiresMailAccess && who.may && status != 200 && (who.role != user.RoleReader || status != 403 || !strings.HasSuffix(path, "/export")):
					t.Errorf("%s gets %d from %s", who.name, status, path)
				}
			}
			if who.may && len(shows) < 13 {
				t.Errorf("%s sees mail only at %q", who.name, shows)
			}
			for _, path := range []string{"/messages", "/messages?direction=received", "/messages?mailbox=" + s.Dev.Mailboxes[0].Address} {
				if status, _, text := v.ask("GET", path, nil); !who.may && (strings.Contains(text, "bob@outside.test") || status != 200 && status != 403) {
					t.Errorf("%s sees who wrote at %s: %d", who.name, path, status)
				}
			}
		}
	})
}

// Reading mail is in the activity: who read which message of which mailbox, once an hour, however
// often a page is loaded. Revoking the right takes effect at once.
func TestReadingIsAudited(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := placesOf(t, s)
		v := member(t, s, "reader", user.RoleReader, true)
		path := p.path("/received/{box}/{id}")
		for range 3 {
			v.ask("GET", path, nil)
			v.ask("GET", path+"/raw", nil)
		}
		v.ask("GET", p.path("/messages/{id}/files/{n}"), nil)
		var got []string
		for _, e := range entries(t, s) {
			if e.Action == "mail.read" && e.Actor.Name == "reader@people.example" && e.Actor.IP.IsLoopback() && e.State == audit.StateDone {
				got = append(got, e.Description+" "+e.Object)
			}
		}
		want := []string{
			"Downloaded a file of a message that was sent. " + p.ids["/messages"], "Downloaded a message in alice@demo.test. " + p.ids["/received"],
			"Read a message in alice@demo.test. " + p.ids["/received"],
		}
		if !slices.Equal(got, want) {
			t.Errorf("the activity says %q, want %q", got, want)
		}
		owner := newVisitor(t, s)
		owner.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		who, err := s.Users.ByEmail(t.Context(), "reader@people.example")
		if err != nil {
			t.Fatal(err)
		}
		if status, _, _ := v.ask("POST", "/people/"+who.ID.String()+"/mail", url.Values{"mail": {"yes"}}); status != 403 {
			t.Errorf("a reader gives permissions: %d", status)
		}
		if status, _, text := owner.ask("POST", "/people/"+who.ID.String()+"/mail", nil); status != 303 {
			t.Errorf("taking the permission away: %d %s", status, text)
		}
		if status, _, _ := v.ask("GET", path, nil); status != 403 {
			t.Errorf("after that the message is shown with %d", status)
		}
		if e := entries(t, s)[0]; e.Description != "reader@people.example may no longer read mail." || e.Action != "POST /people/{id}/mail" || e.Object != who.ID.String() {
			t.Errorf("the activity says %+v", e)
		}
		if status, _, _ := v.ask("GET", "/activity", nil); status != 403 {
			t.Errorf("a reader sees the activity: %d", status)
		}
	})
}

func entries(t *testing.T, s *servertest.Server) []audit.Entry {
	t.Helper()
	list, _, err := s.Audit.List(t.Context(), accountOf(t, s), db.Page{Limit: db.MaxPageSize})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var (
	loseAudit  = db.SQL(`ALTER TABLE dashboard_audit RENAME TO audit_lost`)
	findAudit  = db.SQL(`ALTER TABLE audit_lost RENAME TO dashboard_audit`)
	anyBegun   = db.SQL(`SELECT COUNT(*) FROM dashboard_audit WHERE state = 'begun'`)
	countAudit = db.SQL(`SELECT COUNT(*) FROM dashboard_audit`)
)

// Every form writes its audit log entry before it changes anything: while entries can't be written,
// no form has an effect. The test covers new forms through the route list.
func TestEveryFormIsAudited(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := placesOf(t, s)
		owner, operator, box := member(t, s, "owner", user.RoleOwner, false), newVisitor(t, s), newVisitor(t, s)
		if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "op@people.example", Name: "Op", Password: colleague}, 1); err != nil {
			t.Fatal(err)
		}
		operator.signIn("op@people.example", colleague)
		alice := s.Dev.Mailboxes[0]
		if status, to, text := box.ask("POST", "/mailbox/sign-in", url.Values{"address": {alice.Address}, "password": {alice.Password}}); status != 303 || to != "/mailbox" {
			t.Fatal(status, to, text)
		}
		unaudited := dashboard.Unaudited()
		dbtest.Exec(t, s.DB, loseAudit.With())
		forms := 0
		for _, r := range s.Dashboard.Routes() {
			if r.Method != "POST" {
				continue
			}
			if why := unaudited["POST "+r.Path]; why != "" {
				delete(unaudited, "POST "+r.Path)
				continue
			}
			forms++
			v := owner
			switch {
			case strings.HasPrefix(r.Path, "/operator"):
				v = operator
			case strings.HasPrefix(r.Path, "/mailbox/"):
				v = box
			}
			if status, _, text := v.ask("POST", p.path(r.Path), url.Values{}); status != 500 {
				t.Errorf("%s: %d without the audit log\n%s", r.Path, status, text)
			}
		}
		dbtest.Exec(t, s.DB, findAudit.With())
		if forms < 60 || len(unaudited) > 0 {
			t.Errorf("%d forms; exceptions that are no form: %q", forms, unaudited)
		}
		// Rejected forms leave no entry.
		var before, after, begun int
		count := func(n *int, q *db.Query) {
			if err := s.DB.One(t.Context(), q.With(), n); err != nil {
				t.Fatal(err)
			}
		}
		count(&before, countAudit)
		if status, _, _ := owner.ask("POST", "/domains", url.Values{"name": {"not a domain"}}); status != 422 {
			t.Error(status)
		}
		count(&after, countAudit)
		count(&begun, anyBegun)
		if before != after || begun != 0 {
			t.Errorf("%d entries before, %d after what was refused, %d begun", before, after, begun)
		}
		box.ask("POST", "/mailbox/access", url.Values{"name": {"Phone"}, "protocols": {"imap"}})
		if e := entries(t, s)[0]; e.Actor.Kind != audit.ActorMailbox || e.Actor.Name != alice.Address || !strings.HasPrefix(e.Description, "Made an app password of "+alice.Address) {
			t.Errorf("the activity says %+v", e)
		}
	})
}

// Failed sign-ins are in the activity of the user's accounts, up to a maximum number.
func TestFailedSignInsAreAudited(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		v := newVisitor(t, s)
		const tries = 40
		for i := range tries {
			v.ask("POST", "/sign-in", url.Values{"email": {s.Dev.Dashboard.Email}, "password": {fmt.Sprint("wrong", i)}})
			v.ask("POST", "/sign-in", url.Values{"email": {"nobody@far.example"}, "password": {fmt.Sprint("wrong", i)}})
		}
		if err := s.Users.FlushFailedSignIns(t.Context()); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, e := range entries(t, s) {
			if e.State == audit.StateFailed {
				failed++
				if e.Description != "Failed to sign in: wrong password." || e.Actor.Kind != audit.ActorAnonymous || e.Actor.Name != s.Dev.Dashboard.Email || !e.Actor.IP.IsLoopback() {
					t.Errorf("the activity says %+v", e)
				}
			}
		}
		if failed == 0 || failed > 20 {
			t.Errorf("%d of %d failed sign-ins are in the activity", failed, tries)
		}
	})
}
