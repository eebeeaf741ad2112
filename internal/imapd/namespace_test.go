// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestNamespace(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("NAMESPACE")
		c.got(`* NAMESPACE (("" "/")) NIL NIL`)
	})
}
