// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestStatus(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", note("one"))
		c.append("INBOX", `(\Seen) `, note("two"))
		c.ok("STATUS INBOX (MESSAGES RECENT UIDNEXT UIDVALIDITY UNSEEN)")
		c.got("* STATUS INBOX (MESSAGES 2 RECENT 2 UIDNEXT 3 UIDVALIDITY … UNSEEN 1)")
		c.ok("STATUS inbox (HIGHESTMODSEQ APPENDLIMIT)")
		c.got("* STATUS INBOX (HIGHESTMODSEQ … APPENDLIMIT 52428800)")
		c.no("STATUS Nowhere (MESSAGES)", "NONEXISTENT]")
		c.ok("STATUS INBOX (SIZE)") // RFC 8438
		c.got("* STATUS INBOX (SIZE " + itoa(len(note("one"))+len(note("two"))) + ")")
		c.bad("STATUS INBOX ()")
	})
}
