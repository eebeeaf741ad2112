// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/imapd"
)

func TestUnauthenticate(t *testing.T) {
	each(t, func(h *fixture) {
		h.newMailbox("bob")
		c := h.dialTLS()
		c.bad("UNAUTHENTICATE")
		c = h.login()
		c.append("INBOX", `(\Deleted) `, note("one"))
		c.ok("ENABLE QRESYNC UTF8=ACCEPT")
		c.ok("SELECT INBOX")
		c.ok("UNAUTHENTICATE", "CAPABILITY IMAP4rev1 ")
		c.got()
		c.bad("FETCH 1 FLAGS")
		c.bad("SELECT INBOX")
		c.bad("UNAUTHENTICATE")
		// The state is as at the beginning, and commands may be pipelined (RFC 8437 §3).
		c.ok("LOGIN bob@demo.test " + password)
		c.ok("SELECT INBOX")
		c.has("* 0 EXISTS")
		c.bad("SELECT INBOX (QRESYNC (1 1))")
		c.ok("CREATE Entw&APw-rfe")
		c.ok("LIST \"\" Ent*")
		c.got(`* LIST (\HasNoChildren) "/" Entw&APw-rfe`)
		c.ok("UID SEARCH $")
		c.got("* SEARCH")
		c.send("p1 UNAUTHENTICATE\r\n")
		c.finish("p1")
		c.send("p2 LOGIN " + alice + " " + password + "\r\np3 SELECT INBOX\r\np4 UNAUTHENTICATE\r\np5 LOGIN " + alice + " wrong\r\n")
		for _, tag := range []string{"p2", "p3", "p4", "p5"} {
			c.untagged = nil
			c.finish(tag)
			if tag == "p3" {
				c.has("* 1 EXISTS") // nothing was expunged
			}
		}
		if !matches("NO [AUTHENTICATIONFAILED] …", c.tagged) {
			t.Errorf("got %q", c.tagged)
		}
	})
}

func TestKeepLogin(t *testing.T) {
	eachWith(t, func(o *imapd.Options) { o.DisableUnauthenticate = true }, func(h *fixture) {
		c := h.login()
		c.ok("CAPABILITY")
		c.hasNot("…UNAUTHENTICATE…")
		c.bad("UNAUTHENTICATE")
		c.ok("SELECT INBOX")
	})
}
