// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestCapability(t *testing.T) {
	each(t, func(h *house) {
		c := h.dial()
		c.got("* OK [CAPABILITY IMAP4rev1 LITERAL+ SASL-IR ID ENABLE IDLE NAMESPACE STARTTLS LOGINDISABLED] mail.host.test …")
		c.ok("CAPABILITY")
		c.got("* CAPABILITY IMAP4rev1 LITERAL+ SASL-IR ID ENABLE IDLE NAMESPACE STARTTLS LOGINDISABLED")

		c = h.dialTLS()
		c.got("* OK [CAPABILITY IMAP4rev1 LITERAL+ SASL-IR ID ENABLE IDLE NAMESPACE AUTH=PLAIN] …")
		c.ok("LOGIN "+alice+" "+password, "CAPABILITY IMAP4rev1 ")
		c.ok("capability")
		c.got("* CAPABILITY IMAP4rev1 LITERAL+ SASL-IR ID ENABLE IDLE NAMESPACE CHILDREN SPECIAL-USE UIDPLUS MOVE UNSELECT ESEARCH CONDSTORE APPENDLIMIT=52428800")
		c.bad("CAPABILITY please")
	})
}
