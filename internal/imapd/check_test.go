// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestCheck(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.bad("CHECK")
		c.ok("SELECT INBOX")
		c.ok("CHECK")
		c.got()
	})
}
