// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestRename(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("CREATE Work/Plans")
		c.append("Work/Plans", "", note("one"))
		c.ok("RENAME Work Play")
		c.ok("SELECT Play/Plans")
		c.has("* 1 EXISTS")
		c.no("SELECT Work/Plans", "NONEXISTENT]")
		c.no("RENAME Play Sent", "ALREADYEXISTS]")
		c.no("RENAME Nowhere There", "NONEXISTENT]")

		// Subscriptions move along, even those of names below that don't exist.
		for _, name := range []string{"Play", "Play/Plans", "Play/Nowhere", "Player"} {
			c.ok("SUBSCRIBE " + name)
		}
		c.ok("RENAME Play Games/Play")
		c.ok(`LIST (SUBSCRIBED) "" ("Games*" "Play*")`)
		c.got(`* LIST (\HasChildren \Subscribed) "/" Games/Play`, `* LIST (\NonExistent \HasNoChildren \Subscribed) "/" Games/Play/Nowhere`,
			`* LIST (\HasNoChildren \Subscribed) "/" Games/Play/Plans`, `* LIST (\NonExistent \HasNoChildren \Subscribed) "/" Player`)
		c.ok(`LSUB "" "Games/%"`)
		c.got(`* LSUB () "/" Games/Play`)
		c.ok("RENAME Games/Play/Plans Plans")
		c.ok("DELETE Plans") // its name stays subscribed (RFC 3501 §6.3.9)
		c.ok(`LIST (SUBSCRIBED) "" "Plans"`)
		c.got(`* LIST (\NonExistent \HasNoChildren \Subscribed) "/" Plans`)
		c.ok("RENAME Games/Play Play")

		c.append("INBOX", "", note("two"))
		c.ok("RENAME INBOX Old")
		c.ok("SELECT Old")
		c.has("* 1 EXISTS")
		c.ok("SELECT INBOX")
		c.has("* 0 EXISTS")
	})
}
