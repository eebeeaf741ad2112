// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

var (
	manyWait = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at, lease, attempts,
			sequence, code, enhanced, reply, remote_host, updated_at)
		WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 10500)
		SELECT i, 0, 1, 'a@slow.example', 'to', 'slow.example', 'deferred', CAST($1 AS BIGINT) + i, CAST($1 AS BIGINT) + i, NULL, 1, 0, 451, '4.7.1', 'later', '', 0 FROM k`)
	held = db.SQL(`SELECT COUNT(*) FROM delivery WHERE destination = 'slow.example' AND hold > 0`)
)

// A button applies to all deliveries to a destination, however many there are. The next click
// continues where the last one stopped, and the page says so.
func TestQueueOfMany(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		if err := s.Accounts.EnsureOperatorAccount(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "ops@else.example", Name: "Ops", Password: colleague}, account.OperatorAccount); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(24 * time.Hour)
		dbtest.Exec(t, s.DB, manyWait.With(db.Micros(later)))
		v := newVisitor(t, s)
		v.signIn("ops@else.example", colleague)
		count := func(statement db.Statement) (n int) {
			t.Helper()
			if err := s.DB.One(t.Context(), statement, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		press := func(verb, rest string) (more, told string) {
			t.Helper()
			status, to, text := v.ask("POST", "/operator/queue/"+verb, url.Values{"destination": {"slow.example"}, "rest": {rest}})
			if status != 303 {
				t.Fatalf("%s: %d\n%s", verb, status, text)
			}
			_, _, page := v.ask("GET", to, nil)
			at, err := url.Parse(to)
			if err != nil {
				t.Fatal(err)
			}
			more = at.Query().Get("rest")
			if shown := strings.Contains(page, `formaction="/operator/queue/`+verb+`">Continue`); shown != (more != "") || more != "" && !strings.Contains(page, `value="`+more+`"`) {
				t.Errorf("%s: there is more: %q\n%s", verb, more, page)
			}
			return more, page
		}
		says := func(page, want string) {
			t.Helper()
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q\n%s", want, page)
			}
		}
		s.Dashboard.CommandTimeout = time.Nanosecond
		rest, page := press("hold", "")
		first := count(held.With())
		if rest == "" || first == 0 || first == 10_500 {
			t.Fatalf("%d are held, and %q is left", first, rest)
		}
		says(page, "More are left.")
		for range 3 { // held deliveries are counted as processed rows, too
			if rest != "" {
				rest, page = press("hold", rest)
			}
		}
		if says(page, "Held "); rest != "" || count(held.With()) != 10_500 {
			t.Errorf("then %d are held, and %q is left", count(held.With()), rest)
		}
		s.Dashboard.CommandTimeout = time.Hour
		rest, page = press("release", "")
		says(page, "Released ") // a node may release some of them first
		says(page, " deliveries to slow.example.")
		if n := count(held.With()); rest != "" || n != 0 {
			t.Errorf("%d are held still, and %q is left", n, rest)
		}
		if status, _, _ := v.ask("POST", "/operator/queue/retry", url.Values{"destination": {"slow.example"}, "rest": {"nonsense"}}); status != 422 {
			t.Errorf("a bad place to go on from: %d", status)
		}
	})
}
