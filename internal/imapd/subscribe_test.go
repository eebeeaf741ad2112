// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestSubscribe(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("SUBSCRIBE Not/Yet")
		c.ok("SUBSCRIBE Not/Yet")
		c.ok(`LSUB "" Not*`)
		c.got(`* LSUB () "/" Not/Yet`)
		c.ok("UNSUBSCRIBE Not/Yet")
		c.ok(`LSUB "" Not*`)
		c.got()
	})
}
