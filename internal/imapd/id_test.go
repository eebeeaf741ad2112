// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestID(t *testing.T) {
	each(t, func(h *house) {
		c := h.dial()
		c.ok("ID NIL")
		c.got(`* ID ("name" "Mailstead")`)
		c.ok(`ID ("name" "tester" "version" NIL)`)
		c.bad("ID")
	})
}
