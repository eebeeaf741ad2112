// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/webhook"
)

// A completed action is in the activity, even if the browser has disconnected by then.
func TestActivityOfWhoHungUp(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		v := newVisitor(t, s)
		v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		ctx, hangUp := context.WithCancel(t.Context())
		send := s.Users.SendMail
		s.Users.SendMail = func(ctx context.Context, to, subject, text string) error {
			hangUp()
			<-ctx.Done() // the invitation exists by now
			return send(context.WithoutCancel(ctx), to, subject, text)
		}
		form := url.Values{"email": {"guest@else.example"}, "role": {"reader"}}
		r, err := http.NewRequestWithContext(ctx, "POST", v.base+"/people", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if a, err := v.http.Do(r); err == nil {
			_ = a.Body.Close()
			t.Fatal("the browser did not hang up:", a.Status)
		}
		servertest.Eventually(t, func() string {
			entries, _, err := s.Audit.List(t.Context(), demo.ID, db.Page{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if entries[0].Description != "Sent an invitation to guest@else.example." {
				return "the activity says " + entries[0].Description
			}
			return ""
		})
	})
}

// The path of a webhook's URL may be a secret: the activity shows only the host.
func TestActivityOfWebhooks(t *testing.T) {
	s := servertest.Start(t)
	demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := s.Webhooks.Create(t.Context(), demo.ID, webhook.Spec{URL: "https://hooks.example/s3cret-1", Kinds: []string{"bounce"}})
	if err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	path := "/webhooks/" + w.ID.String()
	for _, act := range []struct {
		path string
		form url.Values
		told string
	}{
		{"/webhooks", url.Values{"url": {"https://hooks.example/s3cret-2"}, "events": {"bounce"}}, "Made the webhook https://hooks.example."},
		{path + "/edit", url.Values{"url": {"https://hooks.example/s3cret-3"}, "events": {"all"}}, "Changed the webhook https://hooks.example."},
		{path + "/replay", url.Values{"since": {"2099-01-01T00:00"}}, "Sending 0 events to the webhook https://hooks.example again."},
		{path + "/rotate", nil, "Made a new secret of the webhook https://hooks.example."},
		{path + "/disable", nil, "Disabled the webhook https://hooks.example."},
		{path + "/delete", nil, "Deleted the webhook https://hooks.example."},
	} {
		if status, _, text := v.ask("POST", act.path, act.form); status != 303 && status != 200 {
			t.Fatalf("%s: %d\n%s", act.path, status, text)
		}
		list, _, err := s.Audit.List(t.Context(), demo.ID, db.Page{Limit: 1})
		if err != nil || list[0].Description != act.told {
			t.Errorf("%s: %+v, %v", act.path, list, err)
		}
	}
}
