// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestExpunge(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for range 5 {
			c.append("INBOX", "", note("x"))
		}
		c.ok("SELECT INBOX")
		c.ok("EXPUNGE")
		c.got()
		c.ok(`STORE 1,3,5 +FLAGS.SILENT (\Deleted)`)
		c.ok("UID EXPUNGE 2:3")
		c.got("* 3 EXPUNGE")
		c.ok("UID EXPUNGE 77")
		c.got()
		c.ok("EXPUNGE")
		if len(c.untagged) != 2 {
			t.Errorf("got %q", c.untagged)
		}
		c.ok("FETCH 1:* UID")
		c.got("* 1 FETCH (UID 2)", "* 2 FETCH (UID 4)")
	})
}
