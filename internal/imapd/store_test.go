// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestStore(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for _, s := range []string{"one", "two", "three"} {
			c.append("INBOX", "", note(s))
		}
		c.ok("SELECT INBOX")
		c.ok(`STORE 1:2 +FLAGS (\Flagged $Work)`)
		c.got(append(keywords("$Work"), `* 1 FETCH (UID 1 FLAGS (\Flagged \Recent $Work))`, `* 2 FETCH (UID 2 FLAGS (\Flagged \Recent $Work))`)...)
		c.ok(`STORE 2 -FLAGS $work`)
		c.got(`* 2 FETCH (UID 2 FLAGS (\Flagged \Recent))`)
		c.ok(`UID STORE 1 FLAGS (\Seen \Answered)`)
		c.got(`* 1 FETCH (UID 1 FLAGS (\Seen \Answered \Recent))`)
		c.ok(`STORE 1:* +FLAGS.SILENT (\Deleted)`)
		c.got()
		c.ok("FETCH 1:* FLAGS")
		c.got(`* 1 FETCH (FLAGS (\Seen \Answered \Deleted \Recent))`, `* 2 FETCH (FLAGS (\Flagged \Deleted \Recent))`, `* 3 FETCH (FLAGS (\Deleted \Recent))`)
		c.ok("STORE 1 FLAGS ()")
		c.got(`* 1 FETCH (UID 1 FLAGS (\Recent))`)
		c.ok(`UID STORE 99 +FLAGS (\Seen)`)
		c.got()
		c.bad(`STORE 4 +FLAGS (\Seen)`)
		for _, impossible := range []string{`(\Frob)`, "([Work])", "(a]b x)", `("in quotes")`, "50%", "(M\xfcller)"} {
			c.no("STORE 1 +FLAGS "+impossible, "CANNOT]")
		}
		c.ok("FETCH 1 FLAGS")
		c.got(`* 1 FETCH (FLAGS (\Recent))`)
	})
}

// No session loses a message's number during STORE, whether it succeeds or not.
func TestStoreOnExpunged(t *testing.T) {
	each(t, func(h *fixture) {
		a := h.login()
		for _, s := range []string{"one", "two", "three"} {
			a.append("INBOX", "", note(s))
		}
		a.ok("SELECT INBOX")
		b := h.selected("INBOX")
		b.ok(`STORE 1 +FLAGS.SILENT (\Deleted)`)
		b.ok("EXPUNGE")
		a.ok(`STORE 2 +FLAGS (\Seen)`)
		a.got(`* 2 FETCH (UID 2 FLAGS (\Seen \Recent))`)
		a.no(`STORE 1:2 +FLAGS (\Answered)`, "EXPUNGEISSUED]")
		a.got(`* 2 FETCH (UID 2 FLAGS (\Seen \Answered \Recent))`)
		a.no(`STORE 1 +FLAGS (\Answered)`, "EXPUNGEISSUED]")
		a.got()
		a.ok(`STORE 1 +FLAGS.SILENT (\Answered)`)
		a.no("FETCH 1:3 (INTERNALDATE)", "EXPUNGEISSUED]")
		a.got("* 2 FETCH (INTERNALDATE …", "* 3 FETCH (INTERNALDATE …")
		a.ok("SEARCH ALL")
		for _, line := range a.untagged {
			if matches("* … EXPUNGE", line) {
				t.Errorf("EXPUNGE during SEARCH")
			}
		}
		a.ok("NOOP")
		a.got("* 1 EXPUNGE")
	})
}
