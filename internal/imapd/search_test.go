// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

func TestSearch(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", `(\Seen $Work) "01-Feb-2026 23:59:00 +0000" `, note("apple"))
		c.append("INBOX", `(\Flagged) "02-Feb-2026 00:01:00 +0000" `, mail)
		c.append("INBOX", `(\Deleted \Seen) "03-Feb-2026 12:00:00 +0000" `, note("pineapple"))
		c.ok("SELECT INBOX")
		for _, x := range []struct{ program, want string }{
			{"ALL", " 1 2 3"},
			{"SEEN", " 1 3"}, {"UNSEEN", " 2"}, {"NOT SEEN", " 2"}, {"UNDELETED", " 1 2"}, {"FLAGGED SEEN", ""},
			{"RECENT", " 1 2 3"}, {"NEW", " 2"}, {"OLD", ""},
			{"KEYWORD $work", " 1"}, {"UNKEYWORD $Work", " 2 3"},
			{"OR FLAGGED DELETED", " 2 3"}, {"NOT (OR FLAGGED DELETED)", " 1"},
			{"2:*", " 2 3"}, {"UID 1,3", " 1 3"}, {"2:3 UID 1:2", " 2"},
			{"BEFORE 2-Feb-2026", " 1"}, {"ON 2-Feb-2026", " 2"}, {"SINCE 2-Feb-2026", " 2 3"},
			{"SENTON 3-Mar-2026", " 2"}, {"SENTBEFORE 3-Mar-2026", " 1 3"}, {"SENTSINCE 3-Mar-2026", " 2"},
			{"LARGER 500", " 2"}, {"SMALLER 500", " 1 3"},
			{"SUBJECT apple", " 1 3"}, {"SUBJECT APPLE NOT SUBJECT pine", " 1"},
			{"SUBJECT \"grüße from\"", " 2"}, {"CHARSET UTF-8 SUBJECT {6+}\r\nGRÜSS", ""},
			{"FROM \"bob smith <bob@\"", " 1 3"}, {"FROM \"jürgen\"", " 2"}, {"TO carol", " 2"}, {"CC dave@", " 2"}, {"BCC x", ""},
			{"HEADER X-Colour BLUE", " 2"}, {"HEADER X-Colour \"\"", " 2"}, {"HEADER Message-ID letter@", " 2"}, {"HEADER Date Mar", " 1 2 3"},
			{"BODY xylophone", " 2"}, {"BODY \"grüße VOM meer\"", " 2"}, {"BODY \"inner html\"", " 2"}, {"BODY \"from the sea\"", ""},
			{"TEXT \"from the sea\"", " 2"}, {"TEXT pineapple", " 3"}, {"NOT TEXT alice", ""}, {"NOT BODY alice", " 2"},
			{"OR BODY xylophone KEYWORD $Work", " 1 2"},
		} {
			c.ok("SEARCH " + x.program)
			if len(c.untagged) != 1 || c.untagged[0] != "* SEARCH"+x.want {
				t.Errorf("%s: got %q, want%s", x.program, c.untagged, x.want)
			}
		}
		c.ok("UID SEARCH DELETED")
		c.got("* SEARCH 3")
		for _, bad := range []string{"SEARCH", "SEARCH FROB", "SEARCH RETURN (ALL PARTIAL 1:2) ALL", "SEARCH OLDER 0"} {
			c.bad(bad)
		}
		for _, none := range []string{"SEARCH 4", "SEARCH 99:100", "UID SEARCH 4 SEEN"} {
			c.ok(none)
			c.got("* SEARCH")
		}
		c.no("SEARCH CHARSET KOI8-R ALL", "BADCHARSET (")
		c.ok("SELECT Sent")
		c.ok("SEARCH 1:*")
		c.got("* SEARCH")
		c.ok("SEARCH ALL")
		c.got("* SEARCH")
	})
}

// A search by sequence number that may have left out expunged messages says so. After a search by
// UID the client is told that they are gone.
func TestSearchOfExpunged(t *testing.T) {
	each(t, func(h *fixture) {
		a := h.login()
		for range 3 {
			a.append("INBOX", "", note("x"))
		}
		a.ok("SELECT INBOX")
		b := h.selected("INBOX")
		b.ok(`STORE 1 +FLAGS.SILENT (\Deleted)`)
		b.ok("EXPUNGE")
		for _, search := range []string{"SEARCH SENTSINCE 1-Jan-1970", "SORT (DATE) UTF-8 SENTSINCE 1-Jan-1970", "THREAD REFERENCES UTF-8 ALL", "UID SEARCH 1:*"} {
			a.ok(search, "EXPUNGEISSUED]")
		}
		a.ok("UID SEARCH ALL")
		a.has("* 1 EXPUNGE")
		a.ok("SEARCH ALL")
		if matches("…EXPUNGEISSUED…", a.tagged) {
			t.Errorf("got %q", a.tagged)
		}
	})
}

func TestESearch(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for range 5 {
			c.append("INBOX", "", note("x"))
		}
		c.ok("SELECT INBOX")
		c.ok(`STORE 3 +FLAGS.SILENT (\Deleted)`)
		c.ok("UID EXPUNGE 3")
		for program, want := range map[string]string{
			"SEARCH RETURN () ALL":                      "ALL 1:4",
			"UID SEARCH RETURN (MIN MAX COUNT ALL) ALL": "UID MIN 1 MAX 5 ALL 1:2,4:5 COUNT 4",
			"SEARCH RETURN (MAX) ALL":                   "MAX 4",
		} {
			c.ok(program)
			c.got("* ESEARCH (TAG …) " + want)
		}
		c.ok("SEARCH RETURN (ALL COUNT) SEEN")
		c.got("* ESEARCH (TAG …) COUNT 0")
	})
}
