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
)

// What was done stands in the activity, also if its browser has hung up by then.
func TestActivityOfWhoHungUp(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo, err := s.Accounts.ByEmail(t.Context(), s.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		v := visit(t, s)
		v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
		ctx, hangUp := context.WithCancel(t.Context())
		send := s.Users.Mail
		s.Users.Mail = func(ctx context.Context, to, subject, text string) error {
			hangUp()
			<-ctx.Done() // by now the invitation is made
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
			deeds, _, err := s.Audit.List(t.Context(), demo.ID, db.Page{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if deeds[0].What != "Sent an invitation to guest@else.example." {
				return "the activity says " + deeds[0].What
			}
			return ""
		})
	})
}
