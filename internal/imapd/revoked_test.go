// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// Sessions end with their login in every state; other sessions continue.
func TestRevoked(t *testing.T) {
	each(t, func(h *fixture) {
		bob := h.newMailbox("bob")
		other := h.loginAs("bob@demo.test")
		bye := func(c *client) {
			t.Helper()
			c.next("* BYE …")
			c.closed()
		}

		waiting, idling, outside := h.selected("INBOX"), h.selected("INBOX"), h.login()
		idling.idle()
		outside.idle()
		changed := "Another-Passw0rd!"
		_, err := h.mailboxes.SetPassword(t.Context(), h.box.Account, h.box.ID, &changed)
		h.must(err)
		bye(waiting)
		bye(idling)
		bye(outside)
		other.ok("NOOP")

		c := h.dialTLS()
		c.no("LOGIN "+alice+" "+password, "AUTHENTICATIONFAILED]")
		c.ok("LOGIN " + alice + " " + changed)
		c.ok("SELECT INBOX")
		suspended := mailbox.StatusSuspended
		_, err = h.mailboxes.Update(t.Context(), h.box.Account, h.box.ID, mailbox.Change{Status: &suspended})
		h.must(err)
		bye(c)

		// If it is unknown which signals were missed, all sessions check, and valid ones continue.
		other.ok("NOOP")
		h.mailboxes.InvalidateAll()
		other.ok("NOOP")
		h.must(h.mailboxes.Delete(t.Context(), h.box.Account, bob.ID))
		bye(other)
	})
}

// eachEnd calls f with each way in which a login ends.
func (h *fixture) eachEnd(f func(what string, end func())) {
	status := func(to string) { h.must(h.mailboxes.Accounts.SetStatus(h.Context(), h.box.Account, to)) }
	f("a new password", func() {
		_, err := h.mailboxes.SetPassword(h.Context(), h.box.Account, h.box.ID, new(password))
		h.must(err)
	})
	f("a suspension", func() { status(account.StatusSuspended) })
	status(account.StatusActive)
}

// A FETCH of all bodies does not outlive the login, even with a slow reader.
func TestRevokedWithinFetch(t *testing.T) {
	each(t, func(h *fixture) {
		const many = 4000 // of 8 KiB: more than all buffers on the way
		h.fill("INBOX", many)
		h.eachEnd(func(what string, end func()) {
			c := h.selected("INBOX")
			c.begin("FETCH 1:* BODY.PEEK[]")
			answers := []string{c.answer()}
			end()
			for last := ""; !matches("* BYE …", last) && len(answers) < many/2; answers = append(answers, last) {
				last = c.answer()
			}
			if len(answers) >= many/2 {
				t.Errorf("%s: the client is still told everything", what)
				return
			}
			c.closed()
		})
	})
}

// A FETCH that must check its login repeatedly does not treat that as an unknown result.
func TestRevokedBetweenLooks(t *testing.T) {
	each(t, func(h *fixture) {
		const many = 4000 // of 8 KiB: more than all buffers on the way
		h.fill("INBOX", many)
		c := h.selected("INBOX")
		c.begin("FETCH 1:* BODY[]")
		stop, stopped := make(chan bool), make(chan bool)
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					h.server.Sessions.RecheckLogins(h.box.ID)
				}
			}
		}()
		for range many / 8 {
			c.answer()
		}
		close(stop)
		<-stopped
		_, err := h.mailboxes.SetPassword(t.Context(), h.box.Account, h.box.ID, new(password))
		h.must(err)
		told := many / 8
		for last := ""; !matches("* BYE …", last) && told < many/2; told++ {
			if last = c.answer(); !matches("* …BODY[] …", last) && !matches("* BYE …", last) {
				h.Fatalf("after %d messages: %s", told, last)
			}
		}
		if told >= many/2 {
			h.Fatal("the client is still told everything")
		}
		c.closed()
	})
}

// An APPEND is rejected if the login ends during it.
func TestRevokedWithinAppend(t *testing.T) {
	each(t, func(h *fixture) {
		h.eachEnd(func(what string, end func()) {
			c := h.login()
			c.begin("APPEND INBOX {9}")
			c.answer() // the continuation request
			end()
			c.send("A: late\r\n\r\n")
			if got := c.answer(); !matches("* BYE …", got) {
				t.Errorf("%s: %s", what, got)
			}
			c.closed()
		})
		h.selected("INBOX").has("* 0 EXISTS")
	})
}

// Sessions end with their next command when their account is suspended.
func TestAccountSuspended(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		c.ok("NOOP")
		h.must(h.mailboxes.Accounts.SetStatus(t.Context(), h.box.Account, account.StatusSuspended))
		c.send("N NOOP\r\n")
		c.next("* BYE …")
		c.closed()
	})
}

var noAccounts = db.SQL(`ALTER TABLE account RENAME TO gone`)

// While the database is unavailable, sessions continue and don't flood the log: there may be ten
// thousand.
func TestAccountUnknown(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		c.ok("NOOP")
		h.must(h.mailboxes.Accounts.SetStatus(t.Context(), h.box.Account, account.StatusActive)) // clears the cache
		dbtest.Exec(h, h.db, noAccounts.With())
		for range 3 {
			c.ok("NOOP")
		}
		if got := h.log.all(); len(got) != 0 {
			t.Errorf("logged: %q", got)
		}
	})
}
