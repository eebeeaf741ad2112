// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestEnable(t *testing.T) {
	each(t, func(h *fixture) {
		h.dialTLS().bad("ENABLE CONDSTORE")
		c := h.selected("INBOX")
		c.ok("ENABLE X-NOTHING CONDSTORE")
		c.got("* OK [HIGHESTMODSEQ …", "* ENABLED CONDSTORE")
		c.ok("ENABLE CONDSTORE")
		c.got("* ENABLED")
	})
}
