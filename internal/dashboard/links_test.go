// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// Links that let somebody in are read by whom they are sent to, and by nobody else
// of the account whose domain they are sent from.
func TestLinksAreNotRead(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.New{Email: "owner@outside.test", Name: "Owner", Password: colleague}, demo.ID); err != nil {
		t.Fatal(err)
	}
	token, err := s.Users.NewInvite(t.Context(), demo.ID, "reader@outside.test", user.Reader)
	if err != nil {
		t.Fatal(err)
	}
	reader := visit(t, s)
	if status, to, text := reader.ask("POST", "/join/"+token, url.Values{"name": {"N"}, "password": {colleague}}); status != 303 || to != "/" {
		t.Fatalf("%d %s\n%s", status, to, text)
	}
	if status, _, text := reader.ask("POST", "/forgotten", url.Values{"email": {"owner@outside.test"}}); status != 200 {
		t.Fatalf("%d\n%s", status, text)
	}
	found := func() []any {
		return called(t, s, "GET", "/outbound/messages?recipient=owner@outside.test", nil)["data"].([]any)
	}
	servertest.Eventually(t, func() string {
		if len(found()) == 0 {
			return "no link was sent"
		}
		return ""
	})
	m := found()[0].(object)
	id, thread := m["id"].(string), m["thread_id"].(string)
	for _, path := range []string{"/messages/" + id, "/messages/" + id + "/raw", "/messages/" + id + "/preview", "/threads/" + url.PathEscape(thread)} {
		if status, _, text := reader.ask("GET", path, nil); strings.Contains(text, "/reset/") || status >= 500 {
			t.Errorf("%s shows a reader a link for the owner's password: %d\n%s", path, status, text)
		}
	}
	if status, _, text := reader.ask("GET", "/messages/"+id, nil); status != 200 || !strings.Contains(text, "Choose a new password") {
		t.Errorf("what became of the message is not shown: %d\n%s", status, text)
	}
	if a := s.API("GET", "/outbound/messages/"+id+"/raw", nil); a.Status != 403 {
		t.Errorf("the API shows the link: %d %s", a.Status, a.Body)
	}
	settles(t, s, id, "delivered")
}
