// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestLogout(t *testing.T) {
	each(t, func(h *fixture) {
		for _, c := range []*client{h.dial(), h.selected("INBOX")} {
			c.ok("LOGOUT")
			c.got("* BYE …")
			c.closed()
		}
	})
}
