// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

func TestID(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dial()
		c.ok("ID NIL")
		c.got(`* ID ("name" "Mailstead")`)
		c.ok(`ID ("name" "tester" "version" NIL)`)
		c.bad("ID")
	})
}

// TestSessionList checks that a connection is listed from its login to its end, with the client's
// name, whenever the client sends it.
func TestSessionList(t *testing.T) {
	each(t, func(h *fixture) {
		wants := func(programs ...string) {
			t.Helper()
			list, _, err := h.mailboxes.Sessions(t.Context(), h.box.Account, h.box.ID, db.Page{})
			h.must(err)
			var got []string
			for _, s := range list {
				got = append(got, s.Program)
			}
			if strings.Join(got, "|") != strings.Join(programs, "|") {
				t.Errorf("listed %q, want %q", got, programs)
			}
		}
		c := h.dialTLS()
		c.ok(`ID ("Name" "Test  Mail" "version" "7.1")`)
		wants()
		c.ok("LOGIN " + alice + " " + password)
		wants("Test Mail 7.1")
		c.ok(`ID ("name" {3+}` + "\r\nA\r\x80)")
		wants("A \uFFFD")
		other := h.login()
		wants("", "A \uFFFD")
		c.ok("ID NIL")
		c.ok("UNAUTHENTICATE")
		wants("")
		c.ok("LOGIN " + alice + " " + password)
		wants("A \uFFFD", "")
		other.ok("LOGOUT")
		other.closed()
		wants("A \uFFFD")
		c.ok(`ID ("name" "` + strings.Repeat("é", 80) + `")`)
		wants(strings.Repeat("é", 50))
	})
}
