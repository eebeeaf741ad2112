// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestMove(t *testing.T) {
	each(t, func(h *fixture) {
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

// The client reads the same responses for any number of batches.
func TestManyParts(t *testing.T) {
	each(t, func(h *fixture) {
		h.folders.BatchSize = 2
		c := h.login()
		for range 5 {
			c.append("INBOX", "", note("x"))
		}
		c.ok("SELECT INBOX (CONDSTORE)")
		other := h.selected("INBOX")
		c.ok("STORE 1:5 +FLAGS.SILENT (\\Deleted)")
		c.got("* 1 FETCH (UID 1 MODSEQ (…))", "* 2 FETCH (UID 2 …", "* 3 FETCH …", "* 4 FETCH …", "* 5 FETCH …")
		c.ok("MOVE 1,3:5 Trash")
		c.got("* OK [COPYUID … 1,3:5 1:4] …", "* 5 EXPUNGE", "* 4 EXPUNGE", "* 3 EXPUNGE", "* 1 EXPUNGE")
		other.ok("NOOP")
		other.has("* … EXPUNGE")
		c.ok("SELECT Trash")
		c.ok("EXPUNGE")
		c.got("* 4 EXPUNGE", "* 3 EXPUNGE", "* 2 EXPUNGE", "* 1 EXPUNGE")
	})
}
