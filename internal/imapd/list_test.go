// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestList(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok(`LIST "" ""`)
		c.got(`* LIST (\Noselect) "/" ""`)
		c.ok(`LIST "" *`)
		c.got(
			`* LIST (\HasNoChildren) "/" INBOX`,
			`* LIST (\HasNoChildren \Archive) "/" Archive`,
			`* LIST (\HasNoChildren \Drafts) "/" Drafts`,
			`* LIST (\HasNoChildren \Junk) "/" Junk`,
			`* LIST (\HasNoChildren \Sent) "/" Sent`,
			`* LIST (\HasNoChildren \Trash) "/" Trash`,
		)
		c.ok("CREATE Work/Plans/2026")
		c.ok("CREATE Entw&APw-rfe")
		c.ok(`LIST "" Work*`)
		c.has(`* LIST (…\HasChildren) "/" Work`, `* LIST (…\HasChildren) "/" Work/Plans`, `* LIST (\HasNoChildren) "/" Work/Plans/2026`)
		c.ok(`LIST "Work/" %`)
		c.got(`* LIST (…\HasChildren) "/" Work/Plans`)
		c.ok(`LIST "" Entw*`)
		c.got(`* LIST (\HasNoChildren) "/" Entw&APw-rfe`)
		c.ok(`LIST "" inbox`)
		c.got(`* LIST (\HasNoChildren) "/" INBOX`)
		c.ok("CREATE Cafe&AwE-") // with a combining accent, which is put together
		for _, list := range []string{`LIST "" Cafe&AwE-`, `LIST "" Cafe&AwE-*`, `LIST Cafe &AwE-`} {
			c.ok(list)
			c.got(`* LIST (\HasNoChildren) "/" Caf&AOk-`)
		}
		c.ok("SUBSCRIBE Cafe&AwE-")
		c.ok(`LSUB "" Cafe&AwE-`)
		c.got(`* LSUB () "/" Caf&AOk-`)
		c.ok(`LIST "" nowhere`)
		c.got()
	})
}

func TestListExtended(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok(`LIST (SPECIAL-USE) "" * RETURN (CHILDREN)`)
		c.got(`…\Archive) "/" Archive`, `…\Drafts) "/" Drafts`, `…\Junk) "/" Junk`, `…\Sent) "/" Sent`, `…\Trash) "/" Trash`)
		c.ok("CREATE A/B")
		c.ok("SUBSCRIBE A/B")
		c.ok("SUBSCRIBE Gone")
		c.ok(`LIST (SUBSCRIBED) "" (A/* G*)`)
		c.got(`* LIST (\HasNoChildren \Subscribed) "/" A/B`, `* LIST (\NonExistent \HasNoChildren \Subscribed) "/" Gone`)
		c.append("A/B", "", note("x"))
		c.ok(`LIST "" A/* RETURN (SUBSCRIBED STATUS (MESSAGES))`)
		c.got(`* LIST (\HasNoChildren \Subscribed) "/" A/B`, `* STATUS A/B (MESSAGES 1)`)
	})
}
