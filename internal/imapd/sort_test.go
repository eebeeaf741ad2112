// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

// sortable returns a session with messages that differ in all criteria of SORT; UID 2 is gone.
func (h *fixture) sortable() *client {
	h.Helper()
	c := h.login()
	for _, m := range []struct{ arrived, header, body string }{
		{"03-Feb-2026 12:00:00 +0000", "From: \"Zoe\" <amy@x.test>\nTo: list:bob@x.test, Ann <ann@x.test>;\nSubject: Re: [list] lunch\nDate: Sun, 31 Dec 2000 16:01:33 -0800", "xx"},
		{"03-Feb-2026 12:00:00 +0000", "Subject: gone", ""},
		{"01-Feb-2026 12:00:00 +0000", "From: =?utf-8?q?=C3=84nne?= <zed@x.test>\nTo: carol@y.test\nCc: dave@x.test\nSubject: apple\nDate: Mon, 1 Jan 2001 00:01:32 +0000", "x"},
		{"02-Feb-2026 12:00:00 +0000", "From: BOB@x.test\nTo: =?utf-8?q?Berta?= <z@x.test>\nCc: Dave@x.test\nSubject: LUNCH (fwd)\nDate: Mon, 1 Jan 2001 00:01:34 +0000", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
		{"02-Feb-2026 12:00:00 +0000", "X-Nothing: else", ""},
	} {
		c.append("INBOX", `"`+m.arrived+`" `, crlf(m.header+"\n\n"+m.body+"\n"))
	}
	c.ok("SELECT INBOX")
	c.ok(`STORE 2 +FLAGS.SILENT (\Deleted)`)
	c.ok("UID EXPUNGE 2")
	return c
}

func TestSort(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.sortable()
		for _, x := range []struct{ program, want string }{
			{"(ARRIVAL) UTF-8 ALL", " 2 3 4 1"},
			{"(REVERSE ARRIVAL) UTF-8 ALL", " 1 3 4 2"}, // equal ones keep their order
			{"(DATE) UTF-8 ALL", " 2 1 3 4"},            // no Date: the internal date
			{"(SIZE) US-ASCII ALL", " 4 2 1 3"},
			{"(SUBJECT) UTF-8 ALL", " 4 2 1 3"},
			{"(SUBJECT REVERSE DATE) UTF-8 ALL", " 4 2 3 1"},
			{"(REVERSE SUBJECT) UTF-8 ALL", " 1 3 2 4"},
			{"(FROM) UTF-8 ALL", " 4 1 3 2"},
			{"(TO) UTF-8 ALL", " 4 2 1 3"}, // for a group, its name replaces the mailbox
			{"(CC ARRIVAL) UTF-8 ALL", " 4 1 2 3"},
			{"(DISPLAYFROM) UTF-8 ALL", " 4 2 3 1"},
			{"(DISPLAYTO) UTF-8 ALL", " 4 3 2 1"},
			{"(SUBJECT) \"utf-8\" 2:3", " 2 3"},
			{"(SUBJECT) US-ASCII TEXT \"not in mailbox\"", ""},
		} {
			c.ok("SORT " + x.program)
			if c.untagged[0] != "* SORT"+x.want {
				t.Errorf("%s: got %q, want%s", x.program, c.untagged, x.want)
			}
		}
		c.ok("UID SORT (REVERSE SIZE) UTF-8 UID 3:*")
		c.got("* SORT 4 3 5")
		c.no("SORT (SUBJECT) KOI8-R ALL", "BADCHARSET (")
		for _, bad := range []string{"SORT () UTF-8 ALL", "SORT (COLOUR) UTF-8 ALL", "SORT (SUBJECT) ALL", "SORT SUBJECT UTF-8 ALL", "SORT (REVERSE) UTF-8 ALL"} {
			c.do(bad, "")
			if c.tagged[:2] == "OK" {
				t.Errorf("%s: %s", bad, c.tagged)
			}
		}
		c.ok("SELECT Drafts")
		c.ok("SORT (SUBJECT) UTF-8 ALL")
		c.got("* SORT")
	})
}

// RFC 5267 §3, and RFC 7162 §3.1.6.
func TestESort(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.sortable()
		for _, x := range []struct{ program, want string }{
			{"SORT RETURN () (ARRIVAL) UTF-8 ALL", "ALL 2:4,1"},
			{"UID SORT RETURN () (REVERSE ARRIVAL) UTF-8 ALL", "UID ALL 1,4:5,3"},
			{"UID SORT RETURN (MIN MAX COUNT) (SUBJECT) UTF-8 ALL", "UID MIN 5 MAX 4 COUNT 4"},
			{"SORT RETURN (COUNT) (SUBJECT) UTF-8 ALL", "COUNT 4"},
			{"SORT RETURN (ALL COUNT) (SUBJECT) UTF-8 SEEN", "COUNT 0"},
			{"SORT RETURN (PARTIAL 2:3) (SUBJECT) UTF-8 ALL", "PARTIAL (2:3 2,1)"},
			{"SORT RETURN (PARTIAL -1:-2) (SUBJECT) UTF-8 ALL", "PARTIAL (-1:-2 1,3)"},
			{"SORT RETURN (SAVE MIN) (SUBJECT) UTF-8 ALL", "MIN 4"},
		} {
			c.ok(x.program)
			if !matches("* ESEARCH (TAG …) "+x.want, c.untagged[0]) {
				t.Errorf("%s: got %q, want %s", x.program, c.untagged, x.want)
			}
		}
		c.ok("SEARCH $")
		c.got("* SEARCH 4")
		c.ok("SORT RETURN (SAVE) (SUBJECT) UTF-8 NOT 1")
		c.got()
		c.ok("SEARCH $")
		c.got("* SEARCH 2 3 4")
		c.no("SORT RETURN (SAVE) (SUBJECT) KOI8-R ALL", "BADCHARSET ")
		c.ok("SEARCH $")
		c.got("* SEARCH")

		c.ok("STORE 3 +FLAGS (x)")
		c.ok("SORT (SUBJECT) UTF-8 MODSEQ 1")
		c.has("* SORT 4 2 1 3 (MODSEQ …)")
		most := c.untagged[len(c.untagged)-1]
		c.ok("SORT RETURN (MAX) (SUBJECT) UTF-8 MODSEQ 1")
		if want := most[len("* SORT 4 2 1 3 (MODSEQ ") : len(most)-1]; !matches("… MAX 3 MODSEQ "+want, c.untagged[0]) {
			t.Errorf("got %q, want %s", c.untagged, want)
		}
	})
}

// Messages that another session has expunged are still in the response, because the client was not
// told yet.
func TestSortWhileExpunged(t *testing.T) {
	each(t, func(h *fixture) {
		c, b := h.sortable(), h.selected("INBOX")
		b.ok(`STORE 3 +FLAGS.SILENT (\Deleted)`)
		b.ok("EXPUNGE")
		c.ok("SORT (SUBJECT) UTF-8 ALL")
		c.has("* SORT 3 4 2 1")
		if len(c.untagged) > 2 { // the flag of 3 may be reported, but no EXPUNGE
			t.Errorf("got %q", c.untagged)
		}
		c.ok("UID SORT (SUBJECT) UTF-8 ALL")
		c.has("* SORT 4 5 3 1", "* 3 EXPUNGE")
	})
}
