// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestMove(t *testing.T) {
	each(t, func(h *house) {
		c := h.login()
		for _, s := range []string{"one", "two", "three", "four"} {
			c.append("INBOX", `(\Flagged) `, note(s))
		}
		c.ok("SELECT INBOX")
		other := h.selected("INBOX")
		c.ok("MOVE 2:3 Trash")
		c.got("* OK [COPYUID … 2:3 1:2] …", "* … EXPUNGE", "* … EXPUNGE")
		other.ok("NOOP")
		other.has("* … EXPUNGE")
		c.ok("UID MOVE 4 Trash")
		c.got("* OK [COPYUID … 4 3] …", "* 2 EXPUNGE")
		c.no("MOVE 1 Nowhere", "TRYCREATE]")
		c.ok("UID MOVE 99 Trash")
		c.got()
		c.ok("FETCH 1:* UID")
		c.got("* 1 FETCH (UID 1)")
		c.ok("SELECT Trash")
		c.ok("FETCH 1:* (FLAGS BODY.PEEK[HEADER.FIELDS (Subject)])")
		c.got("* 1 FETCH (FLAGS (\\Flagged \\Recent)…two…", "* 2 FETCH (…three…", "* 3 FETCH (…four…")
	})
}
