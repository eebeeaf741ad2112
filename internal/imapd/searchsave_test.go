// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

// five returns a session with five messages, of which 2, 4 and 5 are flagged;
// their UIDs are 1, 2, 4, 5 and 6.
func (h *fixture) five() *client {
	h.Helper()
	c := h.login()
	for _, flags := range []string{"", `(\Flagged) `, "", "", `(\Flagged) `, `(\Flagged) `} {
		c.append("INBOX", flags, note("x"))
	}
	c.ok("SELECT INBOX")
	c.ok(`STORE 3 +FLAGS.SILENT (\Deleted)`)
	c.ok("UID EXPUNGE 3")
	return c
}

// The examples of RFC 5182 §2.2, and all other uses of "$".
func TestSearchSave(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.five()
		c.ok("FETCH $ UID") // nothing is saved yet
		c.got()
		c.ok("SEARCH RETURN (SAVE) FLAGGED")
		c.got()
		c.ok("FETCH $ (UID)")
		c.got("* 2 FETCH (UID 2)", "* 4 FETCH (UID 5)", "* 5 FETCH (UID 6)")
		c.ok("UID FETCH $ (UID)")
		c.got("* 2 FETCH (UID 2)", "* 4 FETCH (UID 5)", "* 5 FETCH (UID 6)")
		c.ok("UID SEARCH UID $ SMALLER 4096")
		c.got("* SEARCH 2 5 6")
		c.ok("UID SEARCH $ NOT 5")
		c.got("* SEARCH 2 5")
		c.ok("SEARCH CHARSET UTF-8 (OR $ 1,3) TEXT {1+}\r\nx")
		c.got("* SEARCH 1 2 3 4 5")
		c.ok("COPY $ Drafts", "COPYUID ")
		if !matches("… 2,5:6 1:3] …", c.tagged) {
			t.Errorf("got %q", c.tagged)
		}
		c.ok(`STORE $ +FLAGS.SILENT ($Seen)`)
		c.ok("SEARCH KEYWORD $Seen")
		c.got("* SEARCH 2 4 5")

		// Messages that another session expunges drop out once that is reported.
		b := h.selected("INBOX")
		b.ok("SEARCH RETURN (SAVE) ALL")
		c.ok(`UID STORE 5 +FLAGS.SILENT (\Deleted)`)
		c.ok("UID EXPUNGE $")
		c.got("* 4 EXPUNGE")
		c.ok("FETCH $ UID")
		c.got("* 2 FETCH (UID 2)", "* 4 FETCH (UID 6)")
		b.ok("NOOP")
		b.ok("UID SEARCH $")
		b.got("* SEARCH 1 2 4 6")

		c.ok("MOVE $ Archive")
		c.got("* OK [COPYUID …", "* 4 EXPUNGE", "* 2 EXPUNGE")
		c.ok("COPY $ Drafts") // an empty result is no error
		c.ok("SEARCH $")
		c.got("* SEARCH")
		c.ok("SEARCH RETURN (SAVE) ALL")
		c.ok("EXAMINE INBOX")
		c.ok("FETCH $ UID")
		c.got()
	})
}

// The saved result after a failed search (RFC 5182 §2.1).
func TestSearchSaveFails(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.five()
		saved := func(want string) {
			t.Helper()
			c.ok("UID SEARCH $")
			c.got("* SEARCH" + want)
		}
		c.ok("SEARCH RETURN (SAVE) FLAGGED")
		c.ok("SEARCH SEEN")
		c.ok("SEARCH RETURN (ALL) SEEN")
		c.no("SEARCH CHARSET KOI8-R ALL", "BADCHARSET ")
		c.bad("SEARCH RETURN (SAVE) FROB")
		c.bad("SEARCH RETURN (SAVE) 0")
		saved(" 2 5 6")
		c.no("SEARCH RETURN (SAVE) CHARSET KOI8-R ALL", "BADCHARSET (US-ASCII UTF-8)]")
		saved("")
	})
}

// RFC 5182 §2.4 and RFC 9394 §3.2: which result options save which messages.
func TestSearchSaveSome(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.five()
		for _, x := range []struct{ results, answer, saved string }{
			{"ALL SAVE", "ALL 1:2,4:6", " 1 2 4 5 6"},
			{"SAVE MIN", "MIN 1", " 1"},
			{"SAVE MAX", "MAX 6", " 6"},
			{"MAX SAVE MIN", "MIN 1 MAX 6", " 1 6"},
			{"MAX SAVE MIN COUNT", "MIN 1 MAX 6 COUNT 5", " 1 2 4 5 6"},
			{"ALL SAVE MIN", "MIN 1 ALL 1:2,4:6", " 1 2 4 5 6"},
			{"SAVE PARTIAL 2:3", "PARTIAL (2:3 2,4)", " 2 4"},
			{"SAVE PARTIAL -2:-3 MAX", "MAX 6 PARTIAL (-2:-3 4:5)", " 4 5 6"},
			{"SAVE PARTIAL 1:1 MIN MAX", "MIN 1 MAX 6 PARTIAL (1:1 1)", " 1 6"},
			{"SAVE PARTIAL 1:1 COUNT", "COUNT 5 PARTIAL (1:1 1)", " 1 2 4 5 6"},
			{"SAVE PARTIAL 8:9", "PARTIAL (8:9 NIL)", ""},
		} {
			c.ok("UID SEARCH RETURN (" + x.results + ") ALL")
			c.got("* ESEARCH (TAG …) UID " + x.answer)
			c.ok("UID SEARCH $")
			c.got("* SEARCH" + x.saved)
		}
		c.ok("UID SEARCH RETURN (SAVE MIN) SEEN")
		c.got("* ESEARCH (TAG …) UID")
		c.ok("UID SEARCH $")
		c.got("* SEARCH")
	})
}

// RFC 7162 §3.1.10: the mod-sequence is that of the reported messages.
func TestESearchModSeq(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.five()
		c.ok("ENABLE CONDSTORE")
		seqs := map[string]string{}
		for _, seq := range []string{"5", "1", "3"} {
			c.ok("STORE " + seq + " +FLAGS (x)")
			seqs[seq] = c.modSeq("* " + seq + " FETCH …")
		}
		for results, want := range map[string]string{
			"MIN": "MIN 1 MODSEQ " + seqs["1"], "MAX": "MAX 5 MODSEQ " + seqs["5"],
			"MIN MAX":       "MIN 1 MAX 5 MODSEQ " + seqs["1"],
			"COUNT":         "COUNT 5 MODSEQ " + seqs["3"],
			"MAX ALL":       "MAX 5 ALL 1:5 MODSEQ " + seqs["3"],
			"SAVE MAX":      "MAX 5 MODSEQ " + seqs["5"],
			"PARTIAL -1:-2": "PARTIAL (-1:-2 4:5) MODSEQ " + seqs["5"],
		} {
			c.ok("SEARCH RETURN (" + results + ") MODSEQ 1")
			c.got("* ESEARCH (TAG …) " + want)
		}
	})
}
