// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Accounts with endless migrations, as many as a node runs, don't block another account, and their
// own migrations continue.
func TestTurns(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url), servertest.MigrationWait(time.Millisecond))
		m := &mover{t, s, clientOf(t, s), nil}
		box := s.Dev.Mailboxes[0]
		endless := endless(t)
		const hogs = 2
		for i := range hogs {
			hog, err := s.Accounts.Create(t.Context(), fmt.Sprintf("hog%d@example.org", i), "Hog")
			if err != nil {
				t.Fatal(err)
			}
			for k := range 2 {
				from := dovecotSource(endless, fmt.Sprintf("hog%d.%d", i, k), "none")
				g, err := s.Migrations.Create(t.Context(), migration.Target{Account: hog.ID, Domain: s.Dev.Domain.ID, Mailbox: box.ID},
					migration.Source{Host: from.Host, Port: from.Port, TLS: from.TLS, Username: from.Username, Password: from.Password})
				if err != nil {
					t.Fatal(err)
				}
				servertest.Eventually(t, func() string {
					now, err := s.Migrations.Get(t.Context(), hog.ID, g.ID)
					if err != nil || now.Progress.Copied == 0 {
						return fmt.Sprintf("it has not begun: %+v %v", now, err)
					}
					return ""
				})
			}
		}
		m.ends(m.box("ann", 0), dovecotSource(serve(t, few(5, func(net.Conn, string, string) string { return "" })), "ann", "none"), "completed", "", 5, 0, 0)
	})
}

// endless is a source with one endless folder.
func endless(t *testing.T) (addr string) {
	return serve(t, few(1<<30, func(_ net.Conn, tag, command string) string {
		switch {
		case strings.HasPrefix(command, "FETCH 1:*"): // their sizes
			return tag + " NO Too many\r\n"
		case !strings.HasPrefix(command, "UID SEARCH"):
			return ""
		}
		return fmt.Sprintf("* ESEARCH (TAG %q) UID ALL %s\r\n%s OK done\r\n", tag, strings.Fields(command)[3], tag)
	}))
}

// Nothing is fetched for a suspended account or domain, or for a deleted mailbox.
func TestNoLongerWanted(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url), servertest.MigrationWait(time.Millisecond))
		m := &mover{t, s, clientOf(t, s), nil}
		demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		become := func(status string) {
			t.Helper()
			if err := s.Accounts.SetStatus(t.Context(), demo.ID, status); err != nil {
				t.Fatal(err)
			}
		}
		box := m.box("ann", 0)
		id, err := db.ParseID(m.start(box, dovecotSource(endless(t), "ann", "none")))
		if err != nil {
			t.Fatal(err)
		}
		state := func() (copied int64, inHand, password bool) {
			t.Helper()
			var hands, passwords int
			err := s.DB.One(t.Context(), db.SQL(`SELECT copied, CASE WHEN lease IS NULL THEN 0 ELSE 1 END, CASE WHEN password IS NULL THEN 0 ELSE 1 END
				FROM migration WHERE id = $1`).With(id), &copied, &hands, &passwords)
			if err != nil {
				t.Fatal(err)
			}
			return copied, hands == 1, passwords == 1
		}
		beyond := func(least int64) {
			t.Helper()
			servertest.Eventually(t, func() string {
				if copied, inHand, _ := state(); copied <= least || !inHand {
					return fmt.Sprintf("%d were copied, leased: %t", copied, inHand)
				}
				return ""
			})
		}
		beyond(0)
		become(account.StatusSuspended)
		servertest.Eventually(t, func() string {
			if _, inHand, _ := state(); inHand {
				return "it is still leased"
			}
			return ""
		})
		before, _, _ := state()
		other, err := s.Accounts.Create(t.Context(), "other@example.org", "Other")
		if err != nil {
			t.Fatal(err)
		}
		from := dovecotSource(serve(t, few(5, func(net.Conn, string, string) string { return "" })), "other", "none")
		g, err := s.Migrations.Create(t.Context(), migration.Target{Account: other.ID, Domain: s.Dev.Domain.ID, Mailbox: s.Dev.Mailboxes[0].ID},
			migration.Source{Host: from.Host, Port: from.Port, TLS: from.TLS, Username: from.Username, Password: from.Password})
		if err != nil {
			t.Fatal(err)
		}
		servertest.Eventually(t, func() string { // it queued behind
			now, err := s.Migrations.Get(t.Context(), other.ID, g.ID)
			if err != nil || now.State != migration.Completed {
				return fmt.Sprintf("the other's has not ended: %+v %v", now, err)
			}
			return ""
		})
		if copied, inHand, _ := state(); copied != before || inHand {
			t.Errorf("it went on: %d, then %d, leased: %t", before, copied, inHand)
		}
		become(account.StatusActive)
		beyond(before)

		domain := func(suspended bool) {
			t.Helper()
			if err := s.Domains.SetSuspended(t.Context(), "demo.test", suspended); err != nil {
				t.Fatal(err)
			}
		}
		domain(true)
		servertest.Eventually(t, func() string {
			if _, inHand, _ := state(); inHand {
				return "it is still leased"
			}
			return ""
		})
		before, _, _ = state()
		domain(false)
		beyond(before)

		if err := m.c.DeleteMailbox(t.Context(), box); err != nil {
			t.Fatal(err)
		}
		d := finished(t, m.c, id.String())
		if _, inHand, password := state(); d.Status != "cancelled" || d.Detail != "The mailbox was deleted." || inHand || password {
			t.Errorf("it ended as %s %q, leased: %t, password: %t", d.Status, d.Detail, inHand, password)
		}
		if told := m.told(id.String()); len(told) != 1 || told[0].Status != "cancelled" || told[0].Copied != d.Progress.Copied {
			t.Errorf("told: %+v", told)
		}
	})
}
