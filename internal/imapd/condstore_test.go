// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"regexp"
	"testing"
)

var modSeqIn = regexp.MustCompile(`(?:MODSEQ \(|HIGHESTMODSEQ )(\d+)`)

// modSeq returns the mod-sequence in the response that matches the pattern.
func (c *client) modSeq(pattern string) string {
	c.Helper()
	for _, a := range c.untagged {
		if matches(pattern, a) {
			if m := modSeqIn.FindStringSubmatch(a); m != nil {
				return m[1]
			}
		}
	}
	c.Fatalf("no mod-sequence in %q", c.untagged)
	return ""
}

func TestCondStore(t *testing.T) {
	each(t, func(h *fixture) {
		a := h.login()
		for _, s := range []string{"one", "two", "three"} {
			a.append("INBOX", "", note(s))
		}
		a.ok("SELECT INBOX (CONDSTORE)")
		before := a.modSeq("* OK [HIGHESTMODSEQ …")
		b := h.selected("INBOX")
		b.ok(`STORE 2 +FLAGS (\Flagged)`)
		b.got(`* 2 FETCH (UID 2 FLAGS (\Flagged))`) // b never asked for mod-sequences

		// Flags that others change come with their mod-sequence.
		a.ok("NOOP")
		a.got(`* 2 FETCH (UID 2 MODSEQ (…) FLAGS (\Flagged \Recent))`)
		after := a.modSeq("* 2 FETCH …")

		a.ok("FETCH 1:* (FLAGS) (CHANGEDSINCE " + before + ")")
		a.got(`* 2 FETCH (FLAGS (\Flagged \Recent) MODSEQ (` + after + `))`)
		a.ok("SEARCH MODSEQ " + after)
		a.got("* SEARCH 2 (MODSEQ " + after + ")")
		a.ok("SEARCH RETURN (COUNT ALL) MODSEQ " + after)
		a.got("* ESEARCH (TAG …) ALL 2 COUNT 1 MODSEQ " + after)

		// Messages that others have changed since are not changed.
		a.ok(`STORE 1:2 (UNCHANGEDSINCE `+before+`) +FLAGS (\Seen)`, "MODIFIED 2]")
		a.got(`* 1 FETCH (UID 1 MODSEQ (…) FLAGS (\Seen \Recent))`)
		a.ok(`UID STORE 2 (UNCHANGEDSINCE ` + before + `) +FLAGS.SILENT (\Seen)`)
		if !matches("OK [MODIFIED 2] …", a.tagged) {
			t.Errorf("got %q", a.tagged)
		}
		a.ok(`STORE 2 (UNCHANGEDSINCE ` + after + `) +FLAGS.SILENT (\Seen)`)
		a.got(`* 2 FETCH (UID 2 MODSEQ (…))`)

		// STATUS enables CONDSTORE for b, which is told the folder's HIGHESTMODSEQ.
		b.ok("NOOP")
		b.ok("STATUS INBOX (HIGHESTMODSEQ)")
		b.got("* OK [HIGHESTMODSEQ …", "* STATUS INBOX (HIGHESTMODSEQ …)")
		b.ok("FETCH 3 BODY[TEXT]")
		b.got(`* 3 FETCH (FLAGS (\Seen) MODSEQ (…) BODY[TEXT] …)`)
	})
}
