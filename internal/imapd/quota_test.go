// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestQuota(t *testing.T) {
	each(t, func(h *fixture) {
		mb := 1
		_, err := h.mailboxes.Update(h.Context(), h.box.Account, h.box.ID, mailbox.Change{QuotaMB: &mb})
		h.must(err)
		h.dialTLS().bad(`GETQUOTA ""`)
		c := h.login()
		c.ok(`GETQUOTA ""`)
		c.got(`* QUOTA "" (STORAGE 0 1024)`)
		m := note("x") + strings.Repeat("0123456789abcdef\r\n", 200)
		c.append("INBOX", "", m)
		c.ok("GETQUOTAROOT INBOX")
		c.got(`* QUOTAROOT INBOX ""`, `* QUOTA "" (STORAGE `+itoa((len(m)+1023)/1024)+` 1024)`)
		c.ok("GETQUOTAROOT Not/yet/there")
		c.got(`* QUOTAROOT Not/yet/there ""`, `* QUOTA "" (STORAGE …)`)
		c.no(`GETQUOTA "!partition/sda4"`, "NONEXISTENT]")
		c.no(`SETQUOTA "" (STORAGE 512)`, "NOPERM]")
		c.bad("GETQUOTA")

		// COPY and MOVE with a full mailbox; a move needs no quota.
		c.ok("SELECT INBOX")
		for c.tagged = "OK"; strings.HasPrefix(c.tagged, "OK"); {
			c.finish(c.begin("COPY 1:* Archive"))
		}
		c.no("COPY 1:* Archive", "OVERQUOTA]")
		c.ok("MOVE 1:* Archive")
	})
}

// Small messages use 1,024 octets of the quota each, while their sizes stay the same.
func TestQuotaOfSmallMessages(t *testing.T) {
	each(t, func(h *fixture) {
		mb := 1
		_, err := h.mailboxes.Update(h.Context(), h.box.Account, h.box.ID, mailbox.Change{QuotaMB: &mb})
		h.must(err)
		c := h.login()
		for range 3 {
			c.append("INBOX", "", "\r\nx")
		}
		c.ok(`GETQUOTA ""`)
		c.got(`* QUOTA "" (STORAGE 3 1024)`)
		c.ok("STATUS INBOX (SIZE)")
		c.got("* STATUS INBOX (SIZE 9)")
		c.ok("SELECT INBOX")
		c.ok("FETCH 1 RFC822.SIZE")
		c.got("* 1 FETCH (RFC822.SIZE 3)")
		for c.tagged = "OK"; strings.HasPrefix(c.tagged, "OK"); {
			c.finish(c.begin("COPY 1:* INBOX"))
		}
		c.no("COPY 1:* INBOX", "OVERQUOTA]")
		c.ok(`STORE 1:* +FLAGS.SILENT (\Deleted)`)
		c.ok("EXPUNGE")
		c.ok(`GETQUOTA ""`)
		c.got(`* QUOTA "" (STORAGE 0 1024)`)
	})
}

// A full folder accepts no messages from a client, and a mailbox no folders beyond its limit. Both
// return LIMIT.
func TestFolderLimits(t *testing.T) {
	each(t, func(h *fixture) {
		h.folders.MaxMessages, h.folders.MaxFolders = 2, 8 // six folders exist
		c := h.login()
		c.append("INBOX", "", note("a"))
		c.append("INBOX", "", note("b"))
		c.ok("SELECT INBOX")
		c.no("APPEND INBOX {3+}\r\n\r\nx", "LIMIT]")
		c.no("COPY 1 INBOX", "LIMIT]")
		c.ok("COPY 1 Archive")
		c.no("MOVE 1:2 Archive", "LIMIT]")
		c.ok("MOVE 1 Archive")
		c.ok("CREATE a")
		c.no("CREATE b/c", "LIMIT]")
		c.no("RENAME a b/c/d", "LIMIT]")
		c.ok("RENAME a b/c")
		c.no("CREATE d", "LIMIT]")
	})
}

// RFC 9208 §4.1.4; deletions by other sessions count at once.
func TestDeletedStorage(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.selected("INBOX")
		m := note("x")
		for range 12 {
			c.append("INBOX", "", m)
		}
		c.ok(`STORE 2:5 +FLAGS (\Deleted)`)
		b := h.login()
		b.ok("STATUS INBOX (MESSAGES DELETED DELETED-STORAGE)")
		b.got("* STATUS INBOX (MESSAGES 12 DELETED 4 DELETED-STORAGE " + itoa(4*mailbox.MinCountedSize) + ")")
		c.ok("EXPUNGE")
		b.ok("STATUS INBOX (MESSAGES DELETED DELETED-STORAGE SIZE)")
		b.got("* STATUS INBOX (MESSAGES 8 DELETED 0 SIZE " + itoa(8*len(m)) + " DELETED-STORAGE 0)")
		b.no("STATUS Nowhere (DELETED)", "NONEXISTENT]")
	})
}
