// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestClose(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.bad("CLOSE")
		c.append("INBOX", `(\Deleted) `, note("x"))
		c.ok("SELECT INBOX")
		c.ok("UNSELECT")
		c.bad("UNSELECT")
		c.ok("EXAMINE INBOX")
		c.ok("CLOSE")
		c.ok("SELECT INBOX")
		c.has("* 1 EXISTS")
		c.ok("CLOSE")
		c.got()
		c.ok("SELECT INBOX")
		c.has("* 0 EXISTS")
	})
}
