// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// threadable returns a session with the threads of RFC 5256 §4, (2)(3 6 (4 23)(44 7 96))
// renumbered, two messages that share only a missing parent, and some that are one thread by
// subject. UID 1 is gone.
func (h *fixture) threadable() *client {
	h.Helper()
	c := h.login()
	for i, m := range []struct{ id, fields, subject string }{
		{"gone", "", "gone"},
		{"a", "", "alone"},                                                       // 1
		{"b", "", "b"},                                                           // 2
		{"c", "References: <b@x>\n", "c"},                                        // 3
		{"d", "References: <b@x>\n\t<\"c\"@x>\n", "d"},                           // 4
		{"e", "In-Reply-To: your mail <d@x> <ignored@x>\n", "e"},                 // 5
		{"f", "References: <b@x> <missing@x> <c@x>\n", "f"},                      // 6
		{"g", "References: junk\nIn-Reply-To: <f@x>\n", "g"},                     // 7
		{"h", "References: <nowhere@x>\n", "h"},                                  // 8
		{"i", "References: <nowhere@x>\n", "i"},                                  // 9
		{"j", "", "=?utf-8?q?Gr=C3=BC=C3=9Fe?="},                                 // 10
		{"k", "", "Re: [list] gr\u00fc\u00dfe"},                                  // 11
		{"k", "", "GR\u00dc\u00dfE (fwd)"},                                       // 12, the same Message-ID
		{"l", "References: <m@x> <l@x>\n", "l"}, {"m", "References: <l@x>", "m"}, // 13, 14: a circle
	} {
		date := fmt.Sprintf("Mon, 2 Mar 2026 10:%02d:00 +0000", i)
		c.append("INBOX", "", crlf("From: x@x\nDate: "+date+"\nMessage-ID: <"+m.id+"@x>\n"+m.fields+"Subject: "+m.subject+"\n\nx\n"))
	}
	c.ok("SELECT INBOX")
	c.ok(`STORE 1 +FLAGS.SILENT (\Deleted)`)
	c.ok("UID EXPUNGE 1")
	return c
}

const threads = "(1)(2 3 (4 5)(6 7))((8)(9))(10 (11)(12))(13 14)"

var forgetAnswers = db.SQL(`UPDATE message SET reply_references = $1`)

func TestThread(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.threadable()
		c.ok("THREAD REFERENCES UTF-8 ALL")
		c.got("* THREAD " + threads)
		c.ok("UID THREAD REFERENCES UTF-8 4:9")
		c.got("* THREAD ((5 6)(7 8))((9)(10))")
		c.ok("THREAD REFERENCES UTF-8 NOT 3") // messages that don't match are treated like missing ones
		c.got("* THREAD (1)(2 (4 5)(6 7))((8)(9))(10 (11)(12))(13 14)")
		c.ok("THREAD ORDEREDSUBJECT UTF-8 1,10:12,14")
		c.got("* THREAD (1)(10 (11)(12))(14)")
		c.ok("UID THREAD ORDEREDSUBJECT UTF-8 11:12")
		c.got("* THREAD (12 13)")
		for _, algorithm := range []string{"ORDEREDSUBJECT", "REFERENCES"} {
			c.ok("THREAD " + algorithm + ` US-ASCII TEXT "gewp"`)
			c.got("* THREAD")
			c.no("THREAD "+algorithm+" KOI8-R ALL", "BADCHARSET (")
			c.bad("THREAD " + algorithm + " UTF-8")
			c.ok("THREAD " + algorithm + " UTF-8 99")
			c.got("* THREAD")
		}
		c.bad("THREAD REFS UTF-8 ALL")

		// Messages that were stored before references were stored.
		for range 2 {
			dbtest.Exec(h, h.db, forgetAnswers.With([]byte{}))
			c.ok("THREAD REFERENCES UTF-8 ALL")
			c.got("* THREAD " + threads)
			c.ok("EXAMINE INBOX")
		}
		c.ok("THREAD REFERENCES UTF-8 ALL")
		c.got("* THREAD " + threads)
		var left int
		h.must(h.db.One(h.Context(), countForgotten.With([]byte{}), &left))
		if left != 1 { // the one that was expunged
			t.Errorf("of %d messages it is not noted what they answer", left)
		}
	})
}

var countForgotten = db.SQL(`SELECT COUNT(*) FROM message WHERE reply_references = $1`)

// A message that another session has expunged is still in the response, but not in its thread.
func TestThreadWhileExpunged(t *testing.T) {
	each(t, func(h *fixture) {
		c, b := h.threadable(), h.selected("INBOX")
		b.ok(`STORE 2 +FLAGS.SILENT (\Deleted)`)
		b.ok("EXPUNGE")
		c.ok("THREAD REFERENCES UTF-8 2:5")
		c.has("* THREAD (2)(3 4 5)")
		for _, a := range c.untagged {
			if matches("… EXPUNGE", a) {
				t.Errorf("got %q", c.untagged)
			}
		}
		c.ok("UID THREAD ORDEREDSUBJECT UTF-8 UID 3:5")
		c.has("* THREAD (3)(4)(5)", "* 2 EXPUNGE")
	})
}
