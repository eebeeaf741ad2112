// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Accounts whose migrations don't end, as many as a node has in hand, keep no other
// account waiting; and theirs go on.
func TestTurns(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url), servertest.MigrationWait(time.Millisecond))
		m := &mover{t, s, clientOf(t, s), nil}
		box := s.Dev.Mailboxes[0]
		endless := serve(t, few(1<<30, func(_ net.Conn, tag, command string) string {
			switch {
			case strings.HasPrefix(command, "FETCH 1:*"): // their sizes
				return tag + " NO Too many\r\n"
			case !strings.HasPrefix(command, "UID SEARCH"):
				return ""
			}
			return fmt.Sprintf("* ESEARCH (TAG %q) UID ALL %s\r\n%s OK done\r\n", tag, strings.Fields(command)[3], tag)
		}))
		const hogs = 2
		for i := range hogs {
			hog, err := s.Accounts.Create(t.Context(), fmt.Sprintf("hog%d@example.org", i), "Hog")
			if err != nil {
				t.Fatal(err)
			}
			for k := range 2 {
				from := source(endless, fmt.Sprintf("hog%d.%d", i, k), "none")
				g, err := s.Migrations.Create(t.Context(), migration.Into{Account: hog.ID, Domain: s.Dev.Domain.ID, Mailbox: box.ID},
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
		m.ends(m.box("ann", 0), source(serve(t, few(5, func(net.Conn, string, string) string { return "" })), "ann", "none"), "completed", "", 5, 0, 0)
	})
}
