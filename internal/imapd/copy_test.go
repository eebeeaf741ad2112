// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"testing"
)

func TestCopy(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for _, s := range []string{"one", "two", "three"} {
			c.append("INBOX", `(\Seen $Work) " 2-Mar-2026 09:22:33 +0000" `, note(s))
		}
		c.ok("SELECT INBOX")
		c.ok("COPY 1,3 Archive", "COPYUID ")
		if !matches("OK [COPYUID … 1,3 1:2] …", c.tagged) {
			t.Errorf("got %q", c.tagged)
		}
		c.ok("UID COPY 2 Archive")
		c.ok("UID COPY 77 Archive")
		if matches("…COPYUID…", c.tagged) {
			t.Errorf("got %q", c.tagged)
		}
		c.no("COPY 1 Nowhere", "TRYCREATE]")
		c.bad("COPY 4 Archive")
		c.ok("COPY 1 INBOX", "COPYUID ")
		c.got("* 4 EXISTS", "* … RECENT")
		c.ok("SELECT Archive")
		c.has("* 3 EXISTS")
		c.ok("FETCH 2 (FLAGS INTERNALDATE BODY.PEEK[HEADER.FIELDS (Subject)])")
		c.got(`* 2 FETCH (FLAGS (\Seen \Recent $Work) INTERNALDATE " 2-Mar-2026 09:22:33 +0000" BODY[…] ` + lit("Subject: three\r\n\r\n") + `)`)
	})
}

// A sequence number of an expunged message makes COPY and MOVE fail for all messages; a UID does
// not.
func TestCopyOfExpunged(t *testing.T) {
	each(t, func(h *fixture) {
		a := h.login()
		for _, s := range []string{"one", "two", "three"} {
			a.append("INBOX", "", note(s))
		}
		b := h.selected("INBOX")
		for i, cmd := range []string{"COPY", "MOVE"} {
			a.ok("SELECT INBOX")
			b.ok(fmt.Sprintf(`UID STORE %d +FLAGS.SILENT (\Deleted)`, i+1))
			b.ok("EXPUNGE")
			a.no(cmd+" 1:* Archive", "EXPUNGEISSUED]")
			a.got("* 1 EXPUNGE")
			a.ok("STATUS Archive (UIDNEXT)")
			a.got("* STATUS Archive (UIDNEXT 1)")
		}
		a.ok("UID MOVE 2:3 Archive")
		a.ok("STATUS Archive (UIDNEXT)")
		a.got("* STATUS Archive (UIDNEXT 2)")
	})
}
