// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestIMAP4rev2(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", note("one"))
		c.append("INBOX", `($Forwarded) `, note("two"))
		c.ok("SELECT INBOX") // as in IMAP4rev1, until IMAP4rev2 is enabled
		c.has("* 2 RECENT", "* OK [UNSEEN 1] …")
		c.ok("CLOSE")
		c.ok("ENABLE IMAP4rev2")
		c.got("* ENABLED IMAP4rev2")
		// RFC 9051 §6.3.2
		c.ok("SELECT INBOX", "READ-WRITE]")
		c.has("* 2 EXISTS", "* OK [UIDVALIDITY …", "* OK [UIDNEXT 3] …", `* FLAGS (\Seen \Answered \Flagged \Deleted \Draft $Forwarded)`,
			"* OK [PERMANENTFLAGS (…", `* LIST () "/" INBOX`)
		c.hasNot("* … RECENT", "* OK [UNSEEN …")
		c.ok("EXAMINE Sent")
		c.has("* OK [CLOSED] …", `* LIST (\Sent) "/" Sent`)
		c.ok("SELECT INBOX")
		h.login().append("INBOX", "", note("three"))
		c.ok("NOOP")
		c.got("* 3 EXISTS")
		c.ok("FETCH 3 FLAGS")
		c.got("* 3 FETCH (FLAGS ())")
		// §6.4.4, §7.3.4
		c.ok("SEARCH FROM bob")
		c.got(`* ESEARCH (TAG "t…") ALL 1:3`)
		c.ok("UID SEARCH FROM nobody")
		c.got(`* ESEARCH (TAG "t…") UID`)
		c.ok("SEARCH RETURN (SAVE) KEYWORD $Forwarded")
		c.ok(`STORE $ +FLAGS (\Deleted)`)
		c.got(`* 2 FETCH (UID 2 FLAGS (\Deleted $Forwarded))`)
		c.ok("SEARCH CHARSET UTF-8 SUBJECT two")
		c.got(`* ESEARCH (TAG "t…") ALL 2`)
		c.ok("STATUS INBOX (MESSAGES UNSEEN DELETED SIZE)")
		c.got("* STATUS INBOX (MESSAGES 3 UNSEEN 3 DELETED 1 SIZE …)")
		c.ok("FETCH 1 BINARY.PEEK[1]")
		// Names are UTF-8, and normalized (§5.1, §6.3.9.7).
		c.ok("CREATE \"Gro\u0308ße\"", "MAILBOXID (")
		c.got("* LIST () \"/\" \"Größe\" (\"OLDNAME\" (\"Gro\u0308ße\"))")
		c.ok("EXAMINE \"Gro\u0308ße\"")
		c.has("* LIST () \"/\" \"Größe\" (\"OLDNAME\" (\"Gro\u0308ße\"))")
		c.ok(`RENAME "Größe" A/B`)
		c.got(`* LIST () "/" A/B ("OLDNAME" ("Größe"))`)
		c.no(`RENAME Nowhere C`, "NONEXISTENT]")
		c.ok("DELETE A")
		c.ok(`LIST "" A`)
		c.got(`* LIST (\NonExistent \HasChildren) "/" A`)
		c.ok("UNAUTHENTICATE")
		c.ok("LOGIN " + alice + " " + password)
		c.ok("SELECT INBOX")
		c.has("* … RECENT")
	})
}
