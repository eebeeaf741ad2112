// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestDelete(t *testing.T) {
	each(t, func(h *house) {
		c := h.login()
		c.ok("CREATE Work")
		c.append("Work", "", note("one"))
		c.ok("DELETE Work")
		c.no("SELECT Work", "NONEXISTENT]")
		c.no("DELETE Work", "NONEXISTENT]")
		c.no("DELETE INBOX")

		c.ok("CREATE Open")
		c.ok("SELECT Open")
		c.ok("DELETE Open")
		c.got("* OK [CLOSED] …")
		c.bad("CHECK")
	})
}

// Who reads in a folder that another session has deleted hears of it, and there
// is nothing to log.
func TestReadInDeleted(t *testing.T) {
	each(t, func(h *house) {
		c := h.login()
		c.ok("CREATE Work")
		c.append("Work", "", note("one"))
		c.ok("SELECT Work")
		h.login().ok("DELETE Work")
		c.begin("FETCH 1 BODY[]")
		for _, want := range []string{"* 1 FETCH (BODY[] …", "* BYE …"} {
			if got := c.answer(); !matches(want, got) {
				t.Fatalf("%q, want %s", got, want)
			}
		}
		c.closed()
		if errs := h.log.all(); len(errs) > 0 {
			t.Errorf("logged: %q", errs)
		}
	})
}
