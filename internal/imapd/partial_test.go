// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

// RFC 9394, for SEARCH and for UID FETCH.
func TestPartial(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.five()
		for _, x := range []struct{ page, want string }{
			{"-1:-100", "(-1:-100 1:2,4:6)"}, {"1:2", "(1:2 1:2)"}, {"4:500", "(4:500 5:6)"}, {"500:4", "(500:4 5:6)"},
			{"6:9", "(6:9 NIL)"}, {"-6:-9", "(-6:-9 NIL)"}, {"-2:-1", "(-2:-1 5:6)"}, {"1:4294967295", "(1:4294967295 1:2,4:6)"},
		} {
			c.ok("UID SEARCH RETURN (PARTIAL " + x.page + ") ALL")
			c.got("* ESEARCH (TAG …) UID PARTIAL " + x.want)
		}
		c.ok("UID SEARCH RETURN (COUNT PARTIAL 1:5) SEEN")
		c.got("* ESEARCH (TAG …) UID COUNT 0 PARTIAL (1:5 NIL)")
		for _, bad := range []string{
			"SEARCH RETURN (PARTIAL) ALL", "SEARCH RETURN (PARTIAL 0:1) ALL", "SEARCH RETURN (PARTIAL 1:*) ALL",
			"SEARCH RETURN (PARTIAL -1:1) ALL", "SEARCH RETURN (ALL PARTIAL 1:1) ALL", "SEARCH RETURN (PARTIAL 1:1 PARTIAL 2:2) ALL",
			"FETCH 1:* UID (PARTIAL 1:1)", "UID FETCH 1:* UID (PARTIAL 1:1 PARTIAL 1:1)", "UID FETCH 1:* UID (PARTIAL 1)",
		} {
			c.bad(bad)
		}

		c.ok("UID FETCH 2:60 (UID) (PARTIAL -1:-2)")
		c.got("* 4 FETCH (UID 5)", "* 5 FETCH (UID 6)")
		c.ok("UID FETCH 2:60 (UID) (PARTIAL 1:2)")
		c.got("* 2 FETCH (UID 2)", "* 3 FETCH (UID 4)")
		c.ok("UID FETCH 2:60 (UID) (PARTIAL 5:9)")
		c.got()
		// PARTIAL selects the page before CHANGEDSINCE filters it.
		c.ok("ENABLE CONDSTORE")
		c.ok("STORE 1 +FLAGS (x)")
		since := c.modSeq("* 1 FETCH …")
		c.ok("STORE 2,5 +FLAGS (y)")
		for _, modifiers := range []string{"PARTIAL -1:-3 CHANGEDSINCE " + since, "CHANGEDSINCE " + since + " PARTIAL -1:-3"} {
			c.ok("UID FETCH 1:* (UID) (" + modifiers + ")")
			c.got("* 5 FETCH (UID 6 MODSEQ (…))")
		}
		// Only returned messages become seen.
		c.ok("UID FETCH 1:* (BODY[TEXT]) (PARTIAL 1:1)")
		c.ok("SEARCH SEEN")
		c.got("* SEARCH 1")
	})
}
