// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestCreate(t *testing.T) {
	each(t, func(h *house) {
		c := h.login()
		c.ok("CREATE Work/")
		c.ok("SELECT Work")
		c.no("CREATE Work", "ALREADYEXISTS]")
		c.no("CREATE inbox", "ALREADYEXISTS]")
		c.bad("CREATE Mine (USE (\\Sent))")
		c.no(`CREATE "a//b"`, "CANNOT]")
	})
}
