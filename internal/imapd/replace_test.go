// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
)

// The examples of RFC 8508 §3.2 and §3.3.
func TestReplace(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for i := range 4 {
			c.append("Drafts", `(\Draft $old) `, note(fmt.Sprint(i)))
		}
		c.ok("SELECT Drafts")
		m := note("happy new year !!")
		tag := c.begin(fmt.Sprintf(`REPLACE 4 Drafts (\Seen \Draft) {%d}`, len(m)))
		c.continued("+ ")
		c.send(m + "\r\n")
		c.finish(tag)
		c.got("* OK [APPENDUID … 5] …", "* 4 EXPUNGE", "* 4 EXISTS", "* 4 RECENT")
		c.ok("FETCH 4 (UID FLAGS BODY.PEEK[])")
		c.got(fmt.Sprintf("* 4 FETCH (UID 5 FLAGS (\\Seen \\Draft \\Recent) BODY[] {%d}\r\n%s)", len(m), m))
		c.ok("FETCH 1:* EMAILID")
		old := c.ids()
		c.ok(`UID REPLACE 5 Drafts (\Seen \Draft) "01-Jan-2015 00:06:00 -0500" ` + upload(m+"Join us.\r\n"))
		c.got("* OK [APPENDUID … 6] …", "* 4 EXPUNGE", "* 4 EXISTS", "* 4 RECENT")
		c.ok("FETCH 4 (EMAILID INTERNALDATE)")
		c.got(`* 4 FETCH (INTERNALDATE " 1-Jan-2015 05:06:00 +0000" EMAILID (…))`)
		if c.ids()[0] == old[3] {
			t.Error("another message has the same EMAILID")
		}
		// Into another folder, which RFC 8508 §3.4 recommends for a sent draft.
		q := h.resyncing()
		q.ok("SELECT Drafts")
		q.ok(`REPLACE * Sent (\Seen) `+upload(m), "HIGHESTMODSEQ ")
		q.got("* OK [APPENDUID … 1] …", "* VANISHED 6")
		c.ok("STATUS Sent (MESSAGES UNSEEN SIZE)")
		c.got("* STATUS Sent (MESSAGES 1 UNSEEN 0 SIZE "+itoa(len(m))+")", "* 4 EXPUNGE")
		c.ok("STATUS Drafts (MESSAGES UNSEEN SIZE DELETED)")
		c.got("* STATUS Drafts (MESSAGES 3 UNSEEN 3 DELETED 0 SIZE " + itoa(len(note("0"))*3) + ")")
	})
}

func TestReplaceRefused(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.bad("REPLACE 1 INBOX " + upload(note("x")))
		c.append("INBOX", "", note("one"))
		c.ok("SELECT INBOX")
		c.no("REPLACE 1 Nowhere "+upload(note("x")), "TRYCREATE]")
		c.no("UID REPLACE 7 INBOX "+upload(note("x")), "NONEXISTENT]")
		c.no("REPLACE 1 INBOX {0+}\r\n")
		c.bad("REPLACE 2 INBOX " + upload(note("x")))
		c.bad("REPLACE 1:2 INBOX " + upload(note("x")))
		c.bad("REPLACE 0 INBOX " + upload(note("x")))
		c.no("REPLACE 1 INBOX "+upload(note("x"))+" "+upload(note("y")), "LIMIT]")
		c.no(`REPLACE 1 INBOX (` + strings.Repeat("k", 101) + `) ` + upload(note("x")))
		c.ok("STATUS INBOX (MESSAGES UIDNEXT)")
		c.got("* STATUS INBOX (MESSAGES 1 UIDNEXT 2)")

		// Another session was faster.
		h.selected("INBOX").ok("MOVE 1 Archive")
		c.no("REPLACE 1 INBOX "+upload(note("x")), "EXPUNGEISSUED]")
		c.got("* 1 EXPUNGE")
		c.ok("EXAMINE Archive")
		c.no("REPLACE 1 INBOX "+upload(note("x")), "READ-ONLY]")
		c.ok("SELECT Junk")
		c.bad("REPLACE * INBOX " + upload(note("x")))
		c.no("UID REPLACE * INBOX "+upload(note("x")), "NONEXISTENT]")
	})
}

// Only the additional size of the new message counts (RFC 8508 §3.4).
func TestReplaceQuota(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		m := note("big") + strings.Repeat("0123456789abcdef\r\n", 50_000)
		c.append("INBOX", "", m)
		mb := 1
		_, err := h.mailboxes.Update(h.Context(), h.box.Account, h.box.ID, mailbox.Change{QuotaMB: &mb})
		h.must(err)
		c.ok("REPLACE 1 INBOX " + upload(m+"Hello.\r\n"))
		c.no("REPLACE 1 INBOX "+upload(m+strings.Repeat("0123456789abcdef\r\n", 20_000)), "OVERQUOTA]")
		c.ok("REPLACE 1 Archive " + upload(m))
		c.ok(`GETQUOTA ""`)
		c.got(`* QUOTA "" (STORAGE ` + itoa((len(m)+1023)/1024) + ` 1024)`)
	})
}
