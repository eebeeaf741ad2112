// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestDelete(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("CREATE Work")
		c.append("Work", "", note("one"))
		c.ok("DELETE Work")
		c.no("SELECT Work", "NONEXISTENT]")
		c.no("DELETE Work", "NONEXISTENT]")
		c.no("DELETE INBOX", "CANNOT]")

		// A name without a folder can be deleted once nothing is below it.
		c.ok("CREATE Above/Below")
		c.ok("DELETE Above")
		c.no("DELETE Above", "HASCHILDREN]")

		c.ok("CREATE Open")
		c.ok("SELECT Open")
		c.ok("DELETE Open")
		c.got("* OK [CLOSED] …")
		c.bad("CHECK")

		// Also with another spelling of its name.
		for _, other := range []string{"inbox/Caf&AOk-", "INBOX/Cafe&AwE-"} {
			c.ok("CREATE INBOX/Caf&AOk-")
			c.ok("SELECT INBOX/Caf&AOk-")
			c.ok("DELETE " + other)
			c.got("* OK [CLOSED] …")
		}

		// Another session has given the name to another folder, and the folder
		// another name.
		other := h.login()
		c.ok("CREATE Open")
		c.ok("SELECT Open")
		other.ok("RENAME Open Moved")
		other.ok("CREATE Open")
		c.ok("DELETE Open")
		c.got()
		c.ok("CHECK")
		other.ok("RENAME Moved Again")
		c.ok("DELETE Again")
		c.got("* OK [CLOSED] …")
		c.bad("CHECK")
	})
}
