// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestLsub(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("CREATE Work/Plans")
		c.ok("SUBSCRIBE Work/Plans")
		c.ok("SUBSCRIBE Old/Mail")
		c.ok(`LSUB "" Work*`)
		c.got(`* LSUB () "/" Work/Plans`)
		c.ok(`LSUB "" %`)
		c.has(`* LSUB (\Noselect) "/" Work`, `* LSUB (\Noselect) "/" Old`)
		c.ok("UNSUBSCRIBE Old/Mail")
		c.ok(`LSUB "" Old*`)
		c.got()
		c.ok(`LSUB "" ""`)
		c.got(`* LSUB (\Noselect) "/" ""`)
	})
}
