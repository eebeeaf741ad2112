// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestLogin(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dial()
		c.no("LOGIN "+alice+" "+password, "PRIVACYREQUIRED]")

		c = h.dialTLS()
		c.bad("SELECT INBOX")
		c.no("LOGIN "+alice+" wrong", "AUTHENTICATIONFAILED]")
		c.no("LOGIN nobody@demo.test "+password, "AUTHENTICATIONFAILED]")
		c.ok(`LOGIN "ALICE@Demo.Test" {15+}` + "\r\n" + password)
		c.bad("LOGIN " + alice + " " + password)
		c.bad("AUTHENTICATE PLAIN =")
	})
}

func TestMistakesBeforeLogin(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.dialTLS()
		for range 3 {
			c.bad("FROB")
		}
		c.no("LOGIN "+alice+" wrong", "AUTHENTICATIONFAILED]")
		if got := c.answer(); !matches("* BYE …", got) {
			t.Fatalf("got %q", got)
		}
		c.closed()
	})
}
