// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

// NOOP reports changes by others.
func TestNoop(t *testing.T) {
	each(t, func(h *fixture) {
		h.dial().ok("NOOP")
		a, b := h.selected("INBOX"), h.selected("INBOX")
		a.ok("NOOP")
		a.got()
		b.append("INBOX", "", note("one"))
		b.append("INBOX", `(\Flagged) `, note("two"))
		a.ok("NOOP")
		a.got("* 2 EXISTS", "* … RECENT")
		b.ok("NOOP")
		b.ok(`STORE 1 +FLAGS.SILENT (\Deleted work)`)
		b.got(keywords("work")...)
		a.ok("NOOP")
		a.got(append(keywords("work"), `* 1 FETCH (UID 1 FLAGS (…\Deleted…work))`)...)
		b.ok("EXPUNGE")
		b.got("* 1 EXPUNGE")
		a.ok("NOOP")
		a.got("* 1 EXPUNGE")
		a.ok("NOOP")
		a.got()
		a.ok("FETCH 1 (UID)")
		a.got("* 1 FETCH (UID 2)")
	})
}
