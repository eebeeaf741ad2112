// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
)

func TestQuota(t *testing.T) {
	each(t, func(h *house) {
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

		// COPY and MOVE into a full mailbox; a move needs no room.
		c.ok("SELECT INBOX")
		for c.tagged = "OK"; strings.HasPrefix(c.tagged, "OK"); {
			c.finish(c.begin("COPY 1:* Archive"))
		}
		c.no("COPY 1:* Archive", "OVERQUOTA]")
		c.ok("MOVE 1:* Archive")
	})
}

// RFC 9208 §4.1.4, and what other sessions delete counts at once.
func TestDeletedStorage(t *testing.T) {
	each(t, func(h *house) {
		c := h.selected("INBOX")
		m := note("x")
		for range 12 {
			c.append("INBOX", "", m)
		}
		c.ok(`STORE 2:5 +FLAGS (\Deleted)`)
		b := h.login()
		b.ok("STATUS INBOX (MESSAGES DELETED DELETED-STORAGE)")
		b.got("* STATUS INBOX (MESSAGES 12 DELETED 4 DELETED-STORAGE " + itoa(4*len(m)) + ")")
		c.ok("EXPUNGE")
		b.ok("STATUS INBOX (MESSAGES DELETED DELETED-STORAGE SIZE)")
		b.got("* STATUS INBOX (MESSAGES 8 DELETED 0 SIZE " + itoa(8*len(m)) + " DELETED-STORAGE 0)")
		b.no("STATUS Nowhere (DELETED)", "NONEXISTENT]")
	})
}
