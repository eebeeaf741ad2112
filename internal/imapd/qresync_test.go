// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"regexp"
	"testing"
)

var validityIn = regexp.MustCompile(`UIDVALIDITY (\d+)`)

// remember returns what a client remembers of a folder: UIDVALIDITY and mod-sequence.
func (h *fixture) remember(folder string) (validity, modSeq string) {
	h.Helper()
	c := h.login()
	c.ok("EXAMINE " + folder)
	for _, a := range c.untagged {
		if m := validityIn.FindStringSubmatch(a); m != nil {
			validity = m[1]
		}
	}
	return validity, c.modSeq("* OK [HIGHESTMODSEQ …")
}

// resyncing returns a session with QRESYNC.
func (h *fixture) resyncing() *client {
	h.Helper()
	c := h.login()
	c.ok("ENABLE QRESYNC")
	c.got("* ENABLED QRESYNC")
	return c
}

// RFC 7162 §3.2.5: SELECT reports the changes since then.
func TestQResyncSelect(t *testing.T) {
	each(t, func(h *fixture) {
		b := h.selected("INBOX")
		for i := range 9 {
			b.append("INBOX", "", note(fmt.Sprint(i)))
		}
		validity, then := h.remember("INBOX")
		b.ok(`UID STORE 2 +FLAGS (\Seen \Answered)`)
		b.ok(`UID STORE 8 +FLAGS ($MDNSent)`)
		b.ok(`UID STORE 3,5:6 +FLAGS (\Deleted)`)
		b.ok("EXPUNGE")
		b.append("INBOX", "", note("new"))
		_, now := h.remember("INBOX")

		c := h.resyncing()
		c.ok("SELECT Sent")
		c.ok("SELECT INBOX (QRESYNC ("+validity+" "+then+"))", "READ-WRITE]")
		changes := []string{"* VANISHED (EARLIER) 3,5:6", `* 2 FETCH (UID 2 MODSEQ (…) FLAGS (\Seen \Answered))`,
			`* 5 FETCH (UID 8 MODSEQ (…) FLAGS ($MDNSent))`, `* 7 FETCH (UID 10 MODSEQ (…) FLAGS (…))`}
		c.got(append([]string{"* OK [CLOSED] …", "* FLAGS (…)", "* 7 EXISTS", "* 0 RECENT", "* OK [UNSEEN 1] …", "* OK [PERMANENTFLAGS …",
			"* OK [UIDNEXT 11] …", "* OK [UIDVALIDITY " + validity + "] …", "* OK [HIGHESTMODSEQ " + now + "] …", "* OK [MAILBOXID …"}, changes...)...)
		// Only UIDs that the client knows are reported.
		c.ok("EXAMINE INBOX (QRESYNC ("+validity+" "+then+" 1:2,4:5,7:9))", "READ-ONLY]")
		c.has("* VANISHED (EARLIER) 5", `* 2 FETCH …`, `* 5 FETCH …`)
		c.hasNot("* 7 FETCH …")
		// Nothing has happened since then.
		c.ok("SELECT INBOX (QRESYNC (" + validity + " " + now + " 1:10 (1:3 1:3)))")
		c.hasNot("* VANISHED …", "…FETCH…")
		// Nothing has vanished up to the last pair that matches.
		c.ok("SELECT INBOX (QRESYNC (" + validity + " " + then + " 1:9 (1:2,3 1:2,4)))")
		c.has("* VANISHED (EARLIER) 5:6")
		// A different folder from the remembered one.
		c.ok("SELECT INBOX (QRESYNC (1 " + then + "))")
		c.hasNot("* VANISHED …", "…FETCH…")
		// Far before the start of the log, the view is used.
		c.ok("SELECT INBOX (QRESYNC (" + validity + " 1 1:100))")
		c.has("* VANISHED (EARLIER) 3,5:6", "* 1 FETCH …", "* 7 FETCH …")

		for _, wrong := range []string{"()", "(1)", "(0 1)", "(1 1 1:*)", "(1 1 (1 1:2))", "(1 1 1:2 (1 1) 3)", "(1 x)"} {
			c.bad("SELECT INBOX (QRESYNC " + wrong + ")")
		}
		c.ok("NOOP")
		c.ok("FETCH 1 FLAGS") // the folder is still open
		h.login().bad("SELECT INBOX (QRESYNC (" + validity + " 1))")
	})
}

// RFC 7162 §3.2.6.
func TestUIDFetchVanished(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.resyncing()
		for i := range 12 {
			c.append("INBOX", "", note(fmt.Sprint(i)))
		}
		c.ok("SELECT INBOX")
		then := c.modSeq("* OK [HIGHESTMODSEQ …")
		c.ok(`UID STORE 1:2,5,11:12 +FLAGS.SILENT (\Deleted)`)
		c.ok("UID EXPUNGE 1:12", "HIGHESTMODSEQ ")
		c.got("* VANISHED 1:2,5,11:12")
		c.ok(`UID STORE 4 +FLAGS.SILENT (\Seen)`)
		c.ok(`UID STORE 8 +FLAGS.SILENT ($NoJunk $AutoJunk $MDNSent)`)

		c.ok("UID FETCH 1:10 (FLAGS) (CHANGEDSINCE " + then + ")")
		c.got(`* 2 FETCH (UID 4 FLAGS (\Seen \Recent) MODSEQ (…))`, `* 5 FETCH (UID 8 FLAGS (\Recent …$MDNSent…) MODSEQ (…))`)
		c.ok("UID FETCH 1:10 (FLAGS) (CHANGEDSINCE " + then + " VANISHED)")
		c.got("* VANISHED (EARLIER) 1:2,5", `* 2 FETCH (UID 4 …`, `* 5 FETCH (UID 8 …`)
		c.ok("UID FETCH 6:* (FLAGS) (CHANGEDSINCE " + then + " VANISHED)")
		c.got("* VANISHED (EARLIER) 11:12", `* 5 FETCH (UID 8 …`)
		c.ok("UID FETCH 1:* (FLAGS) (VANISHED CHANGEDSINCE 1)")
		c.has("* VANISHED (EARLIER) 1:2,5,11:12")
		c.ok("UID SEARCH RETURN (SAVE) UID 20")
		c.ok("UID FETCH $ (FLAGS) (VANISHED CHANGEDSINCE 1)")
		c.got()
		c.bad("UID FETCH 1:10 (FLAGS) (VANISHED)")
		c.bad("FETCH 1:3 (FLAGS) (CHANGEDSINCE " + then + " VANISHED)")
		h.selected("INBOX").bad("UID FETCH 1:10 (FLAGS) (CHANGEDSINCE " + then + " VANISHED)")
	})
}

// The example of RFC 7162 §3.2.10.2, and the responses to another session.
func TestVanished(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.resyncing()
		for i := range 11 {
			c.append("INBOX", "", note(fmt.Sprint(i)))
		}
		c.ok("SELECT INBOX")
		other, plain := h.resyncing(), h.selected("INBOX")
		other.ok("SELECT INBOX")
		c.ok(`STORE 3,4,7,11 +FLAGS.SILENT (\Deleted)`)
		c.ok("EXPUNGE", "HIGHESTMODSEQ ")
		c.got("* VANISHED 3:4,7,11")
		c.ok("EXPUNGE")
		c.got()
		if c.tagged != "OK EXPUNGE completed." {
			t.Errorf("nothing expunged: %q", c.tagged)
		}
		// Not during these commands, as they contain sequence numbers.
		other.ok("FETCH 1 UID")
		other.hasNot("* VANISHED …")
		other.ok(`STORE 1 +FLAGS (\Seen)`)
		other.hasNot("* VANISHED …")
		other.ok("UID SEARCH 1:2")
		other.hasNot("* VANISHED …")
		other.ok("UID SEARCH ALL")
		other.has("* VANISHED 3:4,7,11")
		plain.ok("NOOP")
		plain.has("* 11 EXPUNGE", "* 7 EXPUNGE", "* 4 EXPUNGE", "* 3 EXPUNGE")

		// Changes by others are reported before HIGHESTMODSEQ covers them.
		plain.ok(`STORE 1 +FLAGS (\Flagged)`)
		c.ok(`STORE 2 +FLAGS.SILENT (\Deleted)`)
		c.ok("EXPUNGE", "HIGHESTMODSEQ ")
		c.ok("NOOP")
		_, now := h.remember("INBOX")
		c.ok("MOVE 1 Archive", "HIGHESTMODSEQ ")
		c.got("* OK [COPYUID …", "* VANISHED 1")
		c.ok("STATUS INBOX (HIGHESTMODSEQ)")
		if c.modSeq("* STATUS …") <= now {
			t.Errorf("moved: %q after %s", c.untagged, now)
		}
		c.ok(`STORE 1 +FLAGS.SILENT (\Deleted)`)
		c.ok("CLOSE")
		if c.tagged != "OK CLOSE completed." { // RFC 7162 §3.2.8
			t.Errorf("got %q", c.tagged)
		}
		c.ok("SELECT INBOX")
		c.idle()
		plain.ok("NOOP")
		plain.ok(`STORE 1 +FLAGS (\Deleted)`)
		plain.ok("EXPUNGE")
		for {
			if a := c.answer(); matches("* VANISHED …", a) {
				break
			}
		}
	})
}

// hasNot expects that none of the untagged responses is one of these.
func (c *client) hasNot(unwanted ...string) {
	c.Helper()
	for _, w := range unwanted {
		for _, a := range c.untagged {
			if matches(w, a) {
				c.Fatalf("got\n%s\nwith %q", list(c.untagged), w)
			}
		}
	}
}
