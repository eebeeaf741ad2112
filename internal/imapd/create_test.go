// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestCreate(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("CREATE Work/")
		c.ok("SELECT Work")
		c.no("CREATE Work", "ALREADYEXISTS]")
		c.no("CREATE inbox", "ALREADYEXISTS]")
		// RFC 6154 §5.3: each special use has one folder.
		c.no("CREATE Mine (USE (\\Sent))", "USEATTR]")
		c.no("CREATE Everything (USE (\\All))", "USEATTR]")
		c.no("CREATE Both (USE (\\Sent \\Trash))", "USEATTR]")
		c.no("SELECT Mine", "NONEXISTENT]")
		c.ok("DELETE Sent")
		c.ok("CREATE MySent (USE (\\sent \\Sent))", "MAILBOXID (")
		c.ok(`LIST (SPECIAL-USE) "" MySent`)
		c.got(`* LIST (\HasNoChildren \Sent) "/" MySent`)
		c.ok("CREATE Plain (USE ())")
		c.bad("CREATE Other (COLOUR (\\Sent))")
		c.no(`CREATE "a//b"`, "CANNOT]")
	})
}
