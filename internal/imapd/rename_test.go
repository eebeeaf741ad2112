// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestRename(t *testing.T) {
	each(t, func(h *house) {
		c := h.login()
		c.ok("CREATE Work/Plans")
		c.append("Work/Plans", "", note("one"))
		c.ok("RENAME Work Play")
		c.ok("SELECT Play/Plans")
		c.has("* 1 EXISTS")
		c.no("SELECT Work/Plans", "NONEXISTENT]")
		c.no("RENAME Play Sent", "ALREADYEXISTS]")
		c.no("RENAME Nowhere There", "NONEXISTENT]")

		c.append("INBOX", "", note("two"))
		c.ok("RENAME INBOX Old")
		c.ok("SELECT Old")
		c.has("* 1 EXISTS")
		c.ok("SELECT INBOX")
		c.has("* 0 EXISTS")
	})
}
